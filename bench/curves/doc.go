// Command curves measures how leased behaves as one size grows: leases, waiters, sessions, workers and Redis nodes.
//
//	go run ./curves -out curves.json
//	go run ./curves -only waiters,batch -max 1000 -rounds 1 -out trial.json
//
// Each curve starts its own members. A holder, which is a second process of this program, keeps leases and sessions
// alive, so that the garbage collection of their memory does not slow the workers that are measured.
//
// The nouns, in reading order: bench, the settings and the results; curve, a row of the table of curves; cluster, three
// members; holder, the second process; pause, the longest time without a grant.
package main
