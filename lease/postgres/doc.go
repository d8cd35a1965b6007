// Package postgres provides leases in a PostgreSQL database, for programs that do not run a
// lock service. A grant is a committed transaction. So a lock has at most one holder at a
// time, according to the database's clock, and its tokens increase as long as the database
// does not lose committed transactions.
//
// A client that was paused may still act as if it held a lock, so a lock without a gate in
// front of the data is only a hint here too. The database and a lock service are two
// authorities: a resource must get its tokens from one of them. Shared leases and permits
// are not supported.
//
// Tokens rise by 2^32 or more when the database is promoted, recovered to an earlier time, copied or
// loaded from a dump, because it may have forgotten grants. It does not notice if it is started
// from an older copy of its files: raise the tokens with leased_raise first.
//
// The rules are SQL functions, which any program can call (schema/*.sql; [DDL] returns
// them): a lock, its token, the fence and the write can share one transaction.
//
// The nouns, in reading order: [Backend] (backend.go), its sessions (session.go), the calls, which
// share transactions (calls.go) or have their own (alone.go), and the listener, which wakes waiters (listener.go).
package postgres
