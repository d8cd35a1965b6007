// Package torture checks the guarantees with real processes: members of a cluster, Redis
// nodes, a PostgreSQL behind a gate and workers that use them, while a nemesis kills,
// pauses, partitions and empties them and migrates locks between the modes.
//
// A run cannot be replayed. A seed determines the faults of the nemesis and the choices
// of the workers, not their scheduling. Power loss, suspended hosts and several hosts are
// not covered. The only fault of the storage is a crash; the tests of the gates have
// others.
//
// A history has two sources. Each worker prints an event before each operation and after
// its answer, with the monotonic clock that all processes of a host share. The storage
// logs every write and every mark in the transaction that made it. Each lock is used for a
// limited time, so that its history can be checked while the run continues.
//
// It runs on Linux only. Files, in reading order: config.go, run.go and result.go, the API
// ([Config], [Run], [Result]); world.go, all processes of a run, with member.go,
// redisnode.go, postgres.go and network.go; worker.go and holder.go, the
// workers ([Work] is their main function); storage.go, [Storage]; nemesis.go, faults.go
// and scenario.go, the faults; migration.go, migrations between the modes; checker.go,
// history.go and overlap.go, the checks.
package torture
