package objectgate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leased-project/leased/fencing"
)

// Client has the methods of *s3.Client that the gate uses.
type Client interface {
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	GetObjectTagging(context.Context, *s3.GetObjectTaggingInput, ...func(*s3.Options)) (*s3.GetObjectTaggingOutput, error)
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

const (
	markKey    = "leased-mark"   // metadata: the mark, decimal
	writesKey  = "leased-writes" // metadata: the nonces of the last writes, newest first
	linePrefix = "leased:1 "
	// remembered is how many nonces of writes an object keeps. An older write
	// cannot be found again after a lost response.
	remembered = 8
)

// object is the state of an object, without its content, in one response.
type object struct {
	exists     bool
	etag       string
	mark       fencing.Token
	writes     []string // nonces, newest first; empty if the gate never wrote the object
	attributes Attributes
	encryption encryption
	tagCount   int32
	tags       string // as a query, set by readTags
}

// gated reports whether the content starts with the line of the gate.
func (o *object) gated() bool { return len(o.writes) > 0 }

func newNonce() string {
	var random [16]byte
	rand.Read(random[:])
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// parse returns the object that a response to HEAD describes.
func parse(head *s3.HeadObjectOutput) (*object, error) {
	o := &object{exists: true, etag: aws.ToString(head.ETag),
		attributes: attributesOf(head), tagCount: aws.ToInt32(head.TagCount),
		encryption: encryption{head.ServerSideEncryption, head.SSEKMSKeyId, head.BucketKeyEnabled}}
	for name, value := range head.Metadata {
		switch strings.ToLower(name) { // some stores change the case
		case markKey:
			mark, err := fencing.ParseToken(value)
			if err != nil {
				return nil, fmt.Errorf("read the mark in the metadata: %w; find out which program wrote the object", err)
			}
			o.mark = mark
		case writesKey:
			o.writes = strings.Split(value, ",")
		}
	}
	return o, nil
}

// head returns the state of an object. A missing object is not an error.
func (g *Gate) head(ctx context.Context, key string) (*object, error) {
	out, err := g.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &g.bucket, Key: &key})
	if statusOf(err) == http.StatusNotFound {
		return &object{attributes: Attributes{Metadata: map[string]string{}}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the metadata of object %s: %w", key, err)
	}
	return parse(out)
}

// get reads the data of an object, on condition that its state is still o.
func (g *Gate) get(ctx context.Context, key string, o *object) ([]byte, error) {
	if !o.exists {
		return nil, nil
	}
	out, err := g.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &g.bucket, Key: &key, IfMatch: &o.etag})
	if status := statusOf(err); status == http.StatusPreconditionFailed || status == http.StatusNotFound {
		return nil, errChanged
	}
	if err != nil {
		return nil, fmt.Errorf("read object %s: %w", key, err)
	}
	defer out.Body.Close()
	content, err := io.ReadAll(out.Body)
	if err != nil {
		return nil, fmt.Errorf("read object %s: %w", key, err)
	}
	return o.data(content)
}

// data removes the line of the gate from the content.
func (o *object) data(content []byte) ([]byte, error) {
	if !o.gated() {
		return content, nil
	}
	line, data, ok := bytes.Cut(content, []byte("\n"))
	if !ok || !bytes.HasPrefix(line, []byte(linePrefix)) {
		return nil, errors.New("the metadata says that the object is gated, but its content does not start " +
			"with the line of the gate; find out which program wrote the object")
	}
	return data, nil
}

// swap is one conditional write.
type swap struct {
	base  *object // the state that the object must still have
	nonce string
	mark  fencing.Token
	data  []byte
}

// put sends the swap once. The SDK must not retry it: if the first request has
// written, the condition of the second fails.
func (g *Gate) put(ctx context.Context, key string, s *swap) error {
	in := &s3.PutObjectInput{Bucket: &g.bucket, Key: &key,
		Body: bytes.NewReader(slices.Concat([]byte(linePrefix), []byte(s.nonce), []byte("\n"), s.data))}
	options := append(s.base.apply(in), func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	if s.mark != fencing.None {
		in.Metadata[markKey] = s.mark.String()
	}
	writes := append([]string{s.nonce}, s.base.writes...)
	in.Metadata[writesKey] = strings.Join(writes[:min(len(writes), remembered)], ",")
	if s.base.exists {
		in.IfMatch = &s.base.etag
	} else {
		in.IfNoneMatch = aws.String("*")
	}
	_, err := g.client.PutObject(ctx, in, options...)
	return err
}

// statusOf returns the status of the store's response, or 0 without a response.
func statusOf(err error) int {
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}
