// Command profiles shows where the processor time of leased goes: it takes CPU profiles of
// the client, the leader and a follower under load, and adds up the time by layer.
//
// It says nothing about the time that a worker waits. The nouns, in reading order: recorder,
// which takes the profiles (recorder.go); layer, a part of the code (layers.go).
package main
