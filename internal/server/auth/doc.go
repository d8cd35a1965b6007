// Package auth authenticates the callers of the service by a secret.
//
// It does not authorize: an authenticated user may make every call, except for
// those that need the account of a member. Without [Users] everyone may make every
// call.
//
// Files, in reading order:
//
//   - users.go: [User], [Users], and the user of a context.
//   - methods.go: the calls that need no user, and those that need a member.
//   - calls.go: authentication of gRPC and HTTP calls.
package auth
