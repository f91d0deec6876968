"""The lag of groups and of clients, with what it is made of: ends of logs, and times of first unread records."""
