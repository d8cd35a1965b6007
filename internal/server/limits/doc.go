// Package limits bounds what one user can take from the service.
//
// It does not give users equal shares: requests are served in the order in which they
// arrive. Without users, all callers count as one user.
//
// Files, in reading order:
//
//   - limits.go: [Limits], the settings, their defaults and their rules.
//   - check.go: the limits of one request.
//   - account.go: [Accounts], with the streams, waiters and requests of each user on
//     this member.
//
// The limits on sessions and leases are not counted here. They hold for the whole
// cluster, so package raftstore/machine counts them.
package limits
