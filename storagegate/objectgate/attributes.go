package objectgate

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Attributes are what an object carries beside its data. A gated write keeps
// them, and may change them: see [Tx.Attributes]. An empty text means that the
// object does not have the attribute.
type Attributes struct {
	ContentType        string
	ContentEncoding    string
	ContentLanguage    string
	ContentDisposition string
	CacheControl       string
	// Expires is the text of the header, which need not be a date.
	Expires         string
	WebsiteRedirect string
	// StorageClass is such as STANDARD_IA.
	StorageClass string
	// Metadata is the user's own. Names that begin with "leased-" are the
	// gate's, and are not stored.
	Metadata map[string]string
}

// encryption is how the store encrypts the object. It is kept as it is.
type encryption struct {
	mode      types.ServerSideEncryption
	key       *string
	bucketKey *bool
}

// reserved reports whether a name of metadata belongs to the gate.
func reserved(name string) bool { return strings.HasPrefix(strings.ToLower(name), "leased-") }

// attributesOf reads what HEAD has told.
func attributesOf(head *s3.HeadObjectOutput) Attributes {
	a := Attributes{
		ContentType:        aws.ToString(head.ContentType),
		ContentEncoding:    aws.ToString(head.ContentEncoding),
		ContentLanguage:    aws.ToString(head.ContentLanguage),
		ContentDisposition: aws.ToString(head.ContentDisposition),
		CacheControl:       aws.ToString(head.CacheControl),
		Expires:            aws.ToString(head.ExpiresString),
		WebsiteRedirect:    aws.ToString(head.WebsiteRedirectLocation),
		StorageClass:       string(head.StorageClass),
		Metadata:           map[string]string{},
	}
	for name, value := range head.Metadata {
		if !reserved(name) {
			a.Metadata[name] = value
		}
	}
	return a
}

// apply sets what a write sends. What is no field of the request becomes an
// option of it.
func (o *object) apply(in *s3.PutObjectInput) (options []func(*s3.Options)) {
	a := o.attributes
	for _, field := range []struct {
		to   **string
		text string
	}{
		{&in.ContentType, a.ContentType}, {&in.ContentEncoding, a.ContentEncoding}, {&in.ContentLanguage, a.ContentLanguage},
		{&in.ContentDisposition, a.ContentDisposition}, {&in.CacheControl, a.CacheControl},
		{&in.WebsiteRedirectLocation, a.WebsiteRedirect}, {&in.Tagging, o.tags},
	} {
		if field.text != "" {
			*field.to = &field.text
		}
	}
	in.StorageClass = types.StorageClass(a.StorageClass)
	in.ServerSideEncryption, in.SSEKMSKeyId, in.BucketKeyEnabled = o.encryption.mode, o.encryption.key, o.encryption.bucketKey
	in.Metadata = map[string]string{}
	maps.Copy(in.Metadata, a.Metadata)
	maps.DeleteFunc(in.Metadata, func(name, _ string) bool { return reserved(name) })
	if a.Expires != "" { // the request has a date for it, and the text may be none
		options = append(options, s3.WithAPIOptions(smithyhttp.SetHeaderValue("Expires", a.Expires)))
	}
	return options
}

// readTags asks for the tags of the object, if it has any: HEAD tells only how
// many.
func (g *Gate) readTags(ctx context.Context, key string, o *object) error {
	if o.tagCount == 0 {
		return nil
	}
	out, err := g.client.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: &g.bucket, Key: &key})
	if statusOf(err) == http.StatusNotFound {
		return errChanged
	}
	if err != nil {
		return fmt.Errorf("read the tags of object %s, which a write has to keep: %w", key, err)
	}
	tags := url.Values{}
	for _, tag := range out.TagSet {
		tags.Add(aws.ToString(tag.Key), aws.ToString(tag.Value))
	}
	o.tags = tags.Encode()
	return nil
}
