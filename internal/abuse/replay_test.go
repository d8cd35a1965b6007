//go:build linux

package abuse

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// Captured requests that are sent again grant nothing more than the first time: while
// the session lasts, after the lease was released, and after the session has ended. With
// the secret of another user they are refused.
func TestReplayedRequests(t *testing.T) {
	t.Parallel()
	s, secrets := startWithUsers(t, map[string][]string{"alice": {"--allow=acquire:*"}, "bob": {"--allow=acquire:*"}})
	alice, bob := secrets["alice"], secrets["bob"]
	id := engine.NewSessionID().String()
	open := fmt.Sprintf(`{"sessionId":%q,"ttl":"10m"}`, id)
	require.Equal(t, http.StatusOK, s.post(alice, "/v1/open-session", open).status)
	acquire := fmt.Sprintf(`{"resource":"a","sessionId":%q,"nonce":1}`, id)
	granted := s.post(alice, "/v1/acquire", acquire)
	require.Equal(t, http.StatusOK, granted.status, granted.text)
	token := granted.fields["token"]
	captured := map[string]string{"/v1/acquire": acquire, "/v1/renew": fmt.Sprintf(`{"sessionId":%q}`, id),
		"/v1/release":       fmt.Sprintf(`{"resource":"a","token":%.0f}`, token),
		"/v1/close-session": fmt.Sprintf(`{"sessionId":%q}`, id), "/v1/open-session": open}

	sent := 0
	for path, body := range captured {
		a := s.post(bob, path, body)
		if path == "/v1/release" { // it names the lease by its token, and must not confirm a guess
			require.Equal(t, `{"released":false}`+"\n", a.text)
		} else {
			require.Equal(t, "forbidden", a.code, "%s: %s", path, a.text)
		}
		require.NotContains(t, a.text, `"token"`)
		sent++
	}
	again := s.post(alice, "/v1/acquire", acquire)
	require.Equal(t, token, again.fields["token"], "the same attempt has the same grant")
	require.Equal(t, 1, s.count("holders"))

	require.Equal(t, true, s.post(alice, "/v1/release", captured["/v1/release"]).fields["released"])
	require.NotEqual(t, http.StatusOK, s.post(alice, "/v1/acquire", acquire).status,
		"an attempt that was released is not granted again")
	require.NotEqual(t, true, s.post(alice, "/v1/release", captured["/v1/release"]).fields["released"])
	newer := s.post(bob, "/v1/acquire", `{"resource":"a","ttl":"10m"}`)
	require.Greater(t, newer.fields["token"], token)
	require.NotEqual(t, true, s.post(alice, "/v1/release", captured["/v1/release"]).fields["released"],
		"an old release ends a newer lease")

	require.Equal(t, http.StatusOK, s.post(alice, "/v1/close-session", captured["/v1/close-session"]).status)
	for path, body := range captured {
		if path == "/v1/open-session" || path == "/v1/close-session" {
			continue // a session of alice again, without leases
		}
		for _, as := range []string{alice, bob} {
			a := s.post(as, path, body)
			require.True(t, a.status != http.StatusOK || a.fields["released"] == false && path == "/v1/release",
				"%s after the session has ended: %s", path, a.text)
			sent++
		}
	}
	holders := s.call("/v1/inspect", `{"resource":"a"}`)["lock"].(map[string]any)["holders"].([]any)
	require.Len(t, holders, 1)
	require.Equal(t, newer.fields["token"], holders[0].(map[string]any)["token"])
	t.Logf("%d captured requests sent again: one holder, tokens %.0f and %.0f", sent+4, token, newer.fields["token"])
}

// A captured message of a session stream is refused on the stream of another user, and
// on any stream after the session has ended.
func TestReplayedStream(t *testing.T) {
	t.Parallel()
	s, secrets := startWithUsers(t, map[string][]string{"alice": {"--allow=acquire:*"}, "bob": {"--allow=acquire:*"}})
	id := engine.NewSessionID()
	operation := func(n uint64, op *pb.Operation) *pb.SessionRequest {
		op.Id, op.Session = n, id[:]
		return &pb.SessionRequest{Operations: []*pb.Operation{op}}
	}
	open := operation(1, &pb.Operation{Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: 6e11}}})
	captured := []*pb.SessionRequest{
		operation(2, &pb.Operation{Call: &pb.Operation_Attach{Attach: &pb.AttachCall{}}}),
		operation(3, &pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 1,
			Resources: []string{"a"}}}}),
		operation(4, &pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{}}}),
		operation(5, &pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1}}}),
		operation(6, &pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}),
	}
	on := func(as string) func(*pb.SessionRequest) *pb.Answer {
		stream, err := pb.NewLeaseServiceClient(s.dial(as)).Session(testContext(t))
		require.NoError(t, err)
		return func(m *pb.SessionRequest) *pb.Answer {
			require.NoError(t, stream.Send(m))
			for {
				response, err := stream.Recv()
				require.NoError(t, err)
				if len(response.Answers) > 0 {
					return response.Answers[0]
				}
			}
		}
	}
	alice, bob := on(secrets["alice"]), on(secrets["bob"])
	require.Nil(t, alice(open).Error)
	granted := alice(captured[1])
	require.Nil(t, granted.Error)
	for _, m := range append(captured, open) {
		answer := bob(m)
		require.NotNil(t, answer.Error, "bob sent %v", m)
		require.Contains(t, []string{"forbidden", "invalid"}, answer.Error.Code, "bob sent %v", m)
		require.Zero(t, answer.Token)
		require.Empty(t, answer.Holds)
	}
	require.Equal(t, granted.Token, alice(captured[1]).Token)
	require.Nil(t, alice(captured[4]).Error, "alice closes the session")
	for _, m := range captured {
		require.NotNil(t, on(secrets["alice"])(m).Error, "after the end: %v", m)
		require.NotNil(t, bob(m).Error, "after the end, by bob: %v", m)
	}
	require.Zero(t, s.count("holders"))
}
