package server_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// newSigner returns the same key for the same seed.
func newSigner(t testing.TB, seed byte) *signature.Signer {
	t.Helper()
	signer, err := signature.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	require.NoError(t, err)
	return signer
}

// newVerifier returns a verifier, as a gate has it.
func newVerifier(t testing.TB, now func() time.Time, keys ...ed25519.PublicKey) *signature.Verifier {
	t.Helper()
	v, err := signature.NewVerifier(now, keys...)
	require.NoError(t, err)
	return v
}

// withSigner configures a signing key.
func withSigner(signer *signature.Signer) func(*server.Config) {
	return func(c *server.Config) { c.Signer = func() *signature.Signer { return signer } }
}

// In both modes a member signs the token of a lease while it is held, and gates
// verify the signature until it expires.
func TestSign(t *testing.T) {
	t.Parallel()
	signer, fleet := newSigner(t, 1), fleetOf(startRedis(t, 3), longTTL)
	s := startServer(t, withSigner(signer), func(c *server.Config) { c.Redis, c.SignatureTTL = fleet, 30*time.Minute })
	setMode(t, s.Address(), "fast/", engine.Efficiency)
	for _, name := range []string{"fast/a", "slow/a"} {
		t.Run(name, func(t *testing.T) {
			granted := mustPost(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"1m"}`, name))
			before := time.Now()
			signed := mustPost(t, s.Address(), "/v1/sign", leaseName(granted))
			require.Equal(t, name, signed["resource"])
			require.Equal(t, signer.KeyID(), signed["keyId"])
			require.Equal(t, "30m0s", signed["ttl"])
			expires, err := time.Parse(time.RFC3339, signed["expires"].(string))
			require.NoError(t, err)
			require.False(t, expires.Before(before.Add(30*time.Minute).Truncate(time.Second)), "the signature lasts for its TTL")

			text := signed["signedToken"].(string)
			token, err := newVerifier(t, time.Now, signer.PublicKey()).Verify(fencing.Resource(name), text)
			require.NoError(t, err)
			require.EqualValues(t, granted["token"], token)
			late := func() time.Time { return expires }
			_, err = newVerifier(t, late, signer.PublicKey()).Verify(fencing.Resource(name), text)
			require.ErrorIs(t, err, signature.ErrExpired)

			code, answer := post(t, s.Address(), "/v1/sign", fmt.Sprintf(`{"resource":%q,"token":%.0f}`, name,
				granted["token"].(float64)+1))
			require.Equal(t, http.StatusNotFound, code, "a token that was never granted is not signed")
			require.Equal(t, "not-held", answer["code"])
			mustPost(t, s.Address(), "/v1/release", leaseName(granted))
			code, answer = post(t, s.Address(), "/v1/sign", leaseName(granted))
			require.Equal(t, http.StatusNotFound, code, "an ended lease is not signed")
			require.Equal(t, "not-held", answer["code"])
			for _, body := range []string{`{}`, fmt.Sprintf(`{"resource":%q}`, name), `{"token":1}`,
				fmt.Sprintf(`{"resource":%q,"token":9007199254740992}`, name)} {
				code, answer = post(t, s.Address(), "/v1/sign", body)
				require.Equal(t, http.StatusBadRequest, code, body)
				require.Equal(t, "invalid", answer["code"])
			}
		})
	}
}

// The signature of a permit is for the name of its slot.
func TestSignPermit(t *testing.T) {
	t.Parallel()
	signer := newSigner(t, 1)
	s := startServer(t, withSigner(signer))
	mustPost(t, s.Address(), "/v1/acquire", `{"resource":"pool","permits":2}`)
	second := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"pool","permits":2}`)
	signed := mustPost(t, s.Address(), "/v1/sign", leaseName(second))
	require.Equal(t, "pool#2", signed["resource"])
	v := newVerifier(t, time.Now, signer.PublicKey())
	_, err := v.Verify("pool#2", signed["signedToken"].(string))
	require.NoError(t, err)
	_, err = v.Verify("pool#1", signed["signedToken"].(string))
	require.ErrorIs(t, err, signature.ErrBadSignature)
}

func TestSignWithoutAKey(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	granted := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a"}`)
	code, answer := post(t, s.Address(), "/v1/sign", leaseName(granted))
	require.Equal(t, http.StatusNotImplemented, code)
	require.Equal(t, "unsupported", answer["code"])
	require.Contains(t, answer["message"], "signing-key-file")
}

// Only the owner of a lease gets a signature, not even an administrator.
func TestSignByAnotherUser(t *testing.T) {
	t.Parallel()
	signer, alice, bob := newSigner(t, 1), secret.New(), secret.New()
	users := auth.NewUsers([]auth.User{{Name: "alice", Hashes: []secret.Hash{secret.HashOf(alice)},
		Rules: auth.AdminRules()},
		{Name: "bob", Hashes: []secret.Hash{secret.HashOf(bob)}, Rules: auth.AdminRules()}})
	fleet := fleetOf(startRedis(t, 3), longTTL)
	s := startServer(t, withSigner(signer), func(c *server.Config) { c.Users, c.Redis = users, fleet })
	asAlice := pb.NewLeaseServiceClient(dialAs(t, s.Address(), alice))
	asBob := pb.NewLeaseServiceClient(dialAs(t, s.Address(), bob))
	_, err := pb.NewPolicyServiceClient(dialAs(t, s.Address(), alice)).SetPolicy(testContext(t),
		&pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "fast/", Mode: "efficiency"}, Now: true})
	require.NoError(t, err)
	for _, name := range []string{"slow/a", "fast/a"} {
		t.Run(name, func(t *testing.T) {
			var granted *pb.AcquireResponse
			eventually(t, "the lock is granted", func() bool {
				granted, err = asAlice.Acquire(testContext(t), &pb.AcquireRequest{Resource: name, Ttl: "1m"})
				return err == nil
			})
			request := &pb.SignRequest{Resource: name, Token: granted.Token}
			_, err = asBob.Sign(testContext(t), request)
			require.ErrorIs(t, wire.FromStatus(err), engine.ErrNotHeld, "nobody can find out tokens by trying")
			signed, err := asAlice.Sign(testContext(t), request)
			require.NoError(t, err)
			_, err = newVerifier(t, time.Now, signer.PublicKey()).Verify(fencing.Resource(name), signed.SignedToken)
			require.NoError(t, err)
		})
	}
}

// A Go client gets signed tokens in both modes. After the lease was lost, a gate
// refuses its signed token although the signature is valid.
func TestSignedTokenOfAClient(t *testing.T) {
	t.Parallel()
	signer, fleet := newSigner(t, 1), fleetOf(startRedis(t, 3), longTTL)
	s := startServer(t, withSigner(signer), func(c *server.Config) { c.Redis = fleet })
	setMode(t, s.Address(), "fast/", engine.Efficiency)
	c, err := client.Dial(testContext(t), []string{s.Address()}, client.WithLogger(quiet))
	require.NoError(t, err)
	defer c.Close(testContext(t))
	v := newVerifier(t, time.Now, signer.PublicKey())
	for _, name := range []fencing.Resource{"fast/b", "slow/b"} {
		t.Run(string(name), func(t *testing.T) {
			var fence fencing.Fence
			first, err := c.Acquire(testContext(t), name, lease.WithTTL(time.Minute))
			require.NoError(t, err)
			text, err := first.SignedToken(testContext(t))
			require.NoError(t, err)
			token, err := v.Verify(first.GateResource(), text)
			require.NoError(t, err)
			require.Equal(t, first.Token(), token)
			require.NoError(t, fence.Enter(name, token))

			require.NoError(t, c.Break(testContext(t), name, first.Token()))
			second, err := c.Acquire(testContext(t), name, lease.WithTTL(time.Minute))
			require.NoError(t, err)
			text2, err := second.SignedToken(testContext(t))
			require.NoError(t, err)
			token, err = v.Verify(name, text2)
			require.NoError(t, err)
			require.NoError(t, fence.Enter(name, token))

			token, err = v.Verify(name, text)
			require.NoError(t, err, "the old signature is still valid")
			require.ErrorIs(t, fence.Admit(name, token), fencing.ErrStale, "the fence refuses it")
		})
	}
}

// Whoever has credentials of the Redis nodes can write any token there. A member does
// not sign a token that the log does not allow.
func TestSignRefusesATokenAboveTheCeiling(t *testing.T) {
	t.Parallel()
	nodes := startRedis(t, 3)
	fleet := fleetOf(nodes, longTTL)
	s := startServer(t, withSigner(newSigner(t, 1)), func(c *server.Config) { c.Redis = fleet })
	setMode(t, s.Address(), "fast/", engine.Efficiency)
	holder, err := client.Dial(testContext(t), []string{s.Address()}, client.WithLogger(quiet))
	require.NoError(t, err)
	defer holder.Close(testContext(t))
	granted, err := holder.Acquire(testContext(t), "fast/forged", lease.WithTTL(time.Minute))
	require.NoError(t, err)
	_, err = granted.SignedToken(testContext(t))
	require.NoError(t, err)
	const absurd = "9007199254740990"
	forged := 0
	for _, node := range nodes {
		c := redis.NewClient(&redis.Options{Addr: node.Addr})
		defer c.Close()
		keys, err := c.Keys(testContext(t), "*:lock:*forged*").Result()
		require.NoError(t, err)
		for _, key := range keys { // a quorum of the nodes has the record, and perhaps the third one
			require.NoError(t, c.HSet(testContext(t), key, "token", absurd).Err())
			forged++
		}
	}
	require.GreaterOrEqual(t, forged, 2)
	code, answer := post(t, s.Address(), "/v1/sign", `{"resource":"fast/forged","token":`+absurd+`}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	require.Contains(t, answer["message"], absurd)
}

// memberSigner returns the key of members in processes of their own.
func memberSigner() *signature.Signer {
	signer, err := signature.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)))
	if err != nil {
		panic(err)
	}
	return signer
}

// Any member signs tokens of efficiency mode. In correctness mode a follower forwards
// HTTP requests to the leader, and names it to gRPC clients.
func testSignElsewhere(t *testing.T, c *cluster) {
	follower, leader := c.follower().spec.API, c.awaitLeader().spec.API
	v := newVerifier(t, time.Now, memberSigner().PublicKey())
	for _, name := range []string{"fast/signed", "slow/signed"} {
		granted := mustPost(t, leader, "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"1m"}`, name))
		signed := mustPost(t, follower, "/v1/sign", leaseName(granted))
		token, err := v.Verify(fencing.Resource(name), signed["signedToken"].(string))
		require.NoError(t, err)
		require.EqualValues(t, granted["token"], token)

		_, err = pb.NewLeaseServiceClient(dial(t, follower)).Sign(testContext(t), &pb.SignRequest{Resource: name,
			Token: uint64(token)})
		if name == "fast/signed" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, wire.FromStatus(err), wire.ErrNotLeader)
		}
		backend := newClient(t, []string{follower})
		text, err := backend.Sign(testContext(t), fencing.Resource(name), token)
		require.NoError(t, err, "the client follows the redirect")
		require.Equal(t, server.DefaultSignatureTTL, text.TTL)
	}
}
