"""Access rules, request quotas and the audit trail."""
