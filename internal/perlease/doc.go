// Package perlease has a session for engines that provide leases one by one and keep no
// sessions, such as the Redis nodes of efficiency mode. It keeps no state either: the
// client passes each lease with the call that renews or releases it.
package perlease
