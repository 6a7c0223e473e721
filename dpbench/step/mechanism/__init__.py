"""One private step and the parts it is composed of: sampling, noise, update, schedules."""
