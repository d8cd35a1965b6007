package objectgate_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/objectgate"
)

// kept are the headers of an object that was written without the gate.
var kept = map[string]string{
	"Content-Type":                    "text/plain; charset=utf-8",
	"Content-Encoding":                "br",
	"Content-Language":                "de, en",
	"Content-Disposition":             `attachment; filename="a b.txt"`,
	"Cache-Control":                   "max-age=60, private",
	"Expires":                         "0",
	"X-Amz-Website-Redirect-Location": "/elsewhere",
	"X-Amz-Meta-Color":                "blue",
	"X-Amz-Meta-Umlaut":               "=?UTF-8?Q?=C3=A4?=",
	"X-Amz-Tagging-Count":             "2",
}

const tags = "empty=&owner=a+%2B+b%3Dc"

// putRaw writes an object without the gate, with the headers of kept.
func putRaw(t *testing.T, bucket, key, content string) {
	t.Helper()
	_, err := client(t, nil).PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: strings.NewReader(content),
		Tagging: aws.String(tags), Metadata: map[string]string{"color": "blue", "umlaut": kept["X-Amz-Meta-Umlaut"]},
	}, func(o *s3.Options) {
		for name, value := range kept {
			if !strings.HasPrefix(name, "X-Amz-Meta-") && name != "X-Amz-Tagging-Count" {
				o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue(name, value))
			}
		}
	})
	require.NoError(t, err)
}

// requireKept compares the headers and tags of an object with the expected ones.
func requireKept(t *testing.T, bucket, key string, want map[string]string) {
	t.Helper()
	raw, wire := &faultyWire{}, http.Header{}
	raw.onHead = func(answer *http.Response) { wire = answer.Header.Clone() }
	_, err := client(t, raw).HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
	require.NoError(t, err)
	for name, value := range want {
		require.Equal(t, value, wire.Get(name), name)
	}
	out, err := client(t, nil).GetObjectTagging(t.Context(), &s3.GetObjectTaggingInput{Bucket: &bucket, Key: &key})
	require.NoError(t, err)
	found := map[string]string{}
	for _, tag := range out.TagSet {
		found[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	require.Equal(t, map[string]string{"owner": "a + b=c", "empty": ""}, found)
}

// Enter raises the mark and must not change anything else.
func TestEnterKeepsTheObject(t *testing.T) {
	name := bucket(t)
	gate := objectgate.New(client(t, nil), name, fencing.Rule{}, objectgate.Prefix("shop/"))
	key := "shop/" + objectgate.Key(orders)
	putRaw(t, name, key, "from before\nthe gate")
	requireKept(t, name, key, kept)
	holds(t, gate, fencing.None, "from before\nthe gate")
	for token := fencing.Token(1); token < 4; token++ {
		require.NoError(t, gate.Enter(t.Context(), orders, token))
		holds(t, gate, token, "from before\nthe gate")
		requireKept(t, name, key, kept)
	}
}

// A write changes the attributes that it sets and keeps the others.
func TestWriteChangesOnlyTheAttributesItSets(t *testing.T) {
	name, raw := bucket(t), client(t, nil)
	gate := objectgate.New(raw, name, fencing.Rule{})
	key := objectgate.Key(orders)
	putRaw(t, name, key, "compressed")
	require.NoError(t, gate.Do(t.Context(), orders, 1, func(tx *objectgate.Tx) error {
		require.Equal(t, "br", tx.Attributes().ContentEncoding)
		require.Equal(t, "blue", tx.Attributes().Metadata["color"])
		tx.Write([]byte("{}"))
		tx.Attributes().ContentType, tx.Attributes().ContentEncoding = "application/json", ""
		tx.Attributes().Metadata["color"] = "red"
		return nil
	}))
	want := map[string]string{"Content-Type": "application/json", "Content-Encoding": "", "X-Amz-Meta-Color": "red",
		"Cache-Control": kept["Cache-Control"], "Expires": "0"}
	requireKept(t, name, key, want)
	out, err := raw.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &name, Key: &key})
	require.NoError(t, err)
	content, err := io.ReadAll(out.Body)
	require.NoError(t, err)
	line, data, ok := bytes.Cut(content, []byte("\n"))
	require.True(t, ok)
	require.True(t, bytes.HasPrefix(line, []byte("leased:1 ")))
	require.Equal(t, "{}", string(data))
}

// A write cannot set a mark through the metadata.
func TestMetadataCannotForgeAMark(t *testing.T) {
	gate := objectgate.New(client(t, nil), bucket(t), fencing.Rule{})
	forge := func(tx *objectgate.Tx) error {
		tx.Attributes().Metadata["Leased-Mark"] = "99"
		tx.Attributes().Metadata["leased-mark"] = "99"
		tx.Write([]byte("data"))
		return nil
	}
	require.NoError(t, gate.Do(t.Context(), orders, fencing.None, forge))
	holds(t, gate, fencing.None, "data")
	require.NoError(t, gate.Do(t.Context(), orders, 5, forge))
	holds(t, gate, 5, "data")
}

// The test server has one storage class and no encryption, so this test checks the
// request: the write must send the attributes that HEAD returned.
func TestStorageClassAndEncryptionAreKept(t *testing.T) {
	returned := map[string]string{
		"X-Amz-Storage-Class":                             "STANDARD_IA",
		"X-Amz-Server-Side-Encryption":                    "aws:kms",
		"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id":     "key-1",
		"X-Amz-Server-Side-Encryption-Bucket-Key-Enabled": "true",
	}
	var sent http.Header
	wire := &faultyWire{
		onHead: func(answer *http.Response) {
			for name, value := range returned {
				answer.Header.Set(name, value)
			}
		},
		onPut: func(_ int, r *http.Request, _ forward) (*http.Response, error) {
			sent = r.Header.Clone()
			return &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{"Etag": {`"x"`}}, Body: http.NoBody,
				Request: r}, nil
		},
	}
	name := bucket(t)
	putRaw(t, name, objectgate.Key(orders), "data")
	require.NoError(t, objectgate.New(client(t, wire), name, fencing.Rule{}).Enter(t.Context(), orders, 1))
	for header, value := range returned {
		require.Equal(t, value, sent.Get(header), header)
	}
}
