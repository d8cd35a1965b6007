package postgres

// The statements of a batch.
const (
	AcquireLocks = acquireLocks
	ReleaseLocks = releaseLocks
)
