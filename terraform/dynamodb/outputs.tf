output "policy_arns" {
  description = "The IAM policies for clients, by reader and writer."
  value       = { for name, policy in aws_iam_policy.this : name => policy.arn }
}

output "role_arn" {
  description = "The role that clients may assume; null when none was made."
  value       = one(aws_iam_role.client[*].arn)
}

output "store_url" {
  description = "What durastore.open takes."
  value       = "dynamodb://${aws_dynamodb_table.this.name}?region=${data.aws_region.current.name}"
}

output "table_arn" {
  description = "The table's ARN."
  value       = aws_dynamodb_table.this.arn
}
