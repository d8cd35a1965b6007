// Package demo shows what leased does: [Pause] why a lock needs a gate, and [Load] a readable load for the
// dashboard and `leased top`.
//
// Pause runs real processes: two holders update one account under a lock of a real service. One of them
// is stopped with SIGSTOP between its read and its write until its lease has expired and the other
// holder has written. Then it continues. It does not show how likely such a pause is, only what it does.
//
// Load runs teams of workers that acquire, hold, wait for and release locks of both modes, one holder that
// keeps a lock and blocks a queue, and a writer whose late write a gate refuses. It measures nothing;
// package bench does.
//
// The nouns, in reading order: [Pause], which directs the holders; process, a holder as Pause sees it;
// [Hold], the main function of that process; [Load]; team, workers that share locks; [Totals], what has
// happened so far.
package demo
