// Package loaddemo puts a readable load on a running service, so that the dashboard and
// `leased top` have something to show: teams of workers that acquire, hold, wait for and
// release locks of both modes, one holder that keeps a lock and blocks a queue, and a
// writer whose late write a gate refuses.
//
// It measures nothing; package bench does.
//
// The nouns, in reading order: [Load], the whole demo; team, workers that share locks;
// [Totals], what has happened so far.
package loaddemo
