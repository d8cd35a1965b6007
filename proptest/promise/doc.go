// Package promise holds what happened against what is promised.
//
// What it does not give: it makes nothing happen. A simulator, a cluster in
// virtual time and one of real processes tell it their story as [Event]s, and
// it looks for a promise of docs/GUARANTEES.md that the story breaks. A promise
// is written once, here, and means the same in every setting.
//
// The nouns, in reading order: [Event], one thing that happened, seen by a
// client, by the service or by the storage; [Judge], which takes events one by
// one, in time that grows with their number only; [Violation], a broken
// promise; [Report], the figures of a run, which can be added to others.
package promise
