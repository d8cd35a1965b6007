// Package torture checks the promises with real processes: members of a cluster,
// Redis nodes, a PostgreSQL behind a gate and workers that use them, while a nemesis
// kills, stops, partitions and empties them and moves locks between the modes.
//
// What it does not give: a run that can be repeated. A seed repeats what the nemesis
// tries and what the workers choose, not how the system schedules them. A loss of
// power, a suspended machine and several hosts are not part of it; nor are faults of
// the storage but its crash: the tests of the gates have those.
//
// A history has two sources. Each worker prints an event before each operation and
// after its answer, with the time of the one clock that all processes of a machine
// share. The storage keeps a log of every write and every mark, in the transaction
// that made it. Locks are used for a while and then no more, so that a history ends
// and can be checked while the next one goes on.
//
// It runs on Linux only. The nouns, in reading order: [Config], [Scenario] and [Run],
// the whole; [Result], the figures; world, all processes that are started; network, by
// which members are partitioned; holder, what a worker does ([Work] is its main
// function); [Storage], where it writes; nemesis, which injects faults; mover, which
// changes modes; checker, which collects histories; history, which is checked.
package torture
