package pgsql

import "github.com/leased-project/leased/fencing"

// Admit locks the row of the resource $1 and raises its mark to the token $2 if the
// rule with the bound $3 admits it. It returns the new mark of the row, which is
// the token if and only if the token was admitted. It works in every transaction.
const Admit = `SELECT leased_try($1, $2, $3)`

// hold and raise are fast versions of Admit for the first statement of a
// transaction, with the claim $3 and the bound $4. They return the token, or no row
// if the token is refused or Admit must decide. Both lock the row until the
// transaction ends. After a wait for the lock, PostgreSQL compares the token with
// the mark that was committed meanwhile.
const (
	// hold admits a token that is equal to the mark, as in later writes of a holder.
	// It does not write the row.
	hold = `SELECT mark FROM leased_marks WHERE resource = $1::text AND mark = $2::bigint AND ` + claim +
		` FOR NO KEY UPDATE`

	// raise raises the mark of a resource that has one. See leased_try for the
	// condition on the isolation level.
	raise = `UPDATE leased_marks SET mark = $2::bigint
	WHERE resource = $1::text AND mark <= $2::bigint AND $2::bigint - mark <= $4::bigint
	AND current_setting('transaction_isolation') LIKE 'read %' AND ` + claim + ` RETURNING mark`

	// claim records for the guard of a table which token was admitted. The record
	// ends with the transaction or savepoint.
	claim = `set_config('leased.claims', $3::text, true) <> ''`
)

// fenceHold and fenceRaise are hold and raise with an exception for a refusal, so
// that later statements of a batch have no effect.
const (
	fenceHold  = `SELECT coalesce((` + hold + `), ` + fence + `)`
	fenceRaise = `WITH raised AS (` + raise + `) SELECT coalesce((SELECT mark FROM raised), ` + fence + `)`
	fence      = `leased_fence($1::text, $2::bigint, $4::bigint)`
)

// First returns a statement that admits the token faster than Admit. It must be the
// first statement of a transaction. It returns the token, or no row if the token is
// refused or Admit must decide: for the first token of a resource, and at isolation
// levels above READ COMMITTED.
func (h *Hints) First(rule fencing.Rule, resource fencing.Resource, token fencing.Token) (query string, args []any) {
	args = arguments(rule, resource, token)
	if h.Likely(resource, token) {
		return hold, args[:3]
	}
	return raise, args
}

// Fence is First with Admit where First returns no row, and an exception for a
// refusal.
func (h *Hints) Fence(rule fencing.Rule, resource fencing.Resource, token fencing.Token) (query string, args []any) {
	args = arguments(rule, resource, token)
	if h.Likely(resource, token) {
		return fenceHold, args
	}
	return fenceRaise, args
}

func arguments(rule fencing.Rule, resource fencing.Resource, token fencing.Token) []any {
	return []any{string(resource), int64(token), token.String() + " " + string(resource) + "\n", int64(rule.Bound())}
}
