"""What every stage shares: settings, data, workspace, teachers, training loop, reports."""
