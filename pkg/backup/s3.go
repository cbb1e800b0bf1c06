// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	s3Scheme        = "s3://"
	defaultEndpoint = "https://s3.amazonaws.com"
)

// bucket is a Target in an S3 bucket. An object there appears when all of it is written.
type bucket struct {
	client *minio.Client
	name   string
	// prefix begins the keys. It is empty or ends with a slash.
	prefix string
	sse    encrypt.ServerSide
}

var _ Target = (*bucket)(nil)

// openBucket returns the bucket that a URL names. Its credentials are those of the
// environment, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or those that the cloud gives
// the pod.
func openBucket(text string) (*bucket, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("--target: not a URL") // which may hold what is not for a log
	}
	if u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("--target %s: want s3://BUCKET/PREFIX, without credentials", u.Redacted())
	}
	query := u.Query()
	for name := range query {
		switch name {
		case "endpoint", "region", "sse", "insecure":
		default:
			return nil, fmt.Errorf("--target %s: %q is unknown, there are endpoint, region, sse and insecure", u.Redacted(), name)
		}
	}
	sse, err := parseSSE(query.Get("sse"))
	if err != nil {
		return nil, fmt.Errorf("--target %s: %w", u.Redacted(), err)
	}
	at, err := parseEndpoint(query)
	if err != nil {
		return nil, fmt.Errorf("--target %s: %w", u.Redacted(), err)
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{},
			&credentials.IAM{Client: http.DefaultClient},
		}),
		Secure: at.Scheme == "https",
		Region: query.Get("region"),
	})
	if err != nil {
		return nil, fmt.Errorf("--target %s: %w", u.Redacted(), err)
	}
	b := &bucket{client: client, name: u.Host, sse: sse}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		b.prefix = prefix + "/"
	}
	return b, nil
}

// parseEndpoint returns the URL of the server. In the clear it is only if that is asked for.
func parseEndpoint(query url.Values) (*url.URL, error) {
	endpoint := cmp.Or(query.Get("endpoint"), defaultEndpoint)
	at, err := url.Parse(endpoint)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" || strings.Trim(at.Path, "/") != "" {
		return nil, errors.New("the endpoint is no URL of a server, such as https://s3.example.com")
	}
	if at.Scheme == "http" && query.Get("insecure") != "true" {
		return nil, errors.New("all that is stored, and its keys, would be sent in the clear: use https, or say insecure=true")
	}
	return at, nil
}

// parseSSE returns how the server encrypts: not told, AES256, or aws:kms and the id of a key.
func parseSSE(text string) (encrypt.ServerSide, error) {
	if key, ok := strings.CutPrefix(text, "aws:kms:"); ok && key != "" {
		return encrypt.NewSSEKMS(key, nil)
	}
	switch text {
	case "":
		return nil, nil
	case "AES256":
		return encrypt.NewSSE(), nil
	}
	return nil, fmt.Errorf("sse %q: want AES256, or aws:kms:KEY", text)
}

func (b *bucket) String() string { return s3Scheme + path.Join(b.name, b.prefix) }

// Names implements Target.
func (b *bucket) Names(ctx context.Context) (map[string]int64, error) {
	names := map[string]int64{}
	for object := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix}) {
		if object.Err != nil {
			return nil, object.Err
		}
		names[strings.TrimPrefix(object.Key, b.prefix)] = object.Size
	}
	return names, nil
}

// clean removes parts of an age, which a process left that was killed meanwhile.
func (b *bucket) clean(ctx context.Context, age time.Duration) error {
	for upload := range b.client.ListIncompleteUploads(ctx, b.name, b.prefix+"sandlot-", false) {
		if upload.Err != nil {
			return fmt.Errorf("looking for unfinished uploads: %w", upload.Err)
		}
		if (clock.RealClock{}).Since(upload.Initiated) <= age {
			continue
		}
		if err := b.client.RemoveIncompleteUpload(ctx, b.name, upload.Key); err != nil {
			return fmt.Errorf("removing the unfinished upload of %s: %w", upload.Key, err)
		}
	}
	return nil
}

// Write implements Target. To see unfinished uploads takes rights that a backup can do without.
func (b *bucket) Write(ctx context.Context, name string, content *os.File) error {
	if err := b.clean(ctx, longestWrite); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to remove unfinished uploads, which take space", "target", b.String())
	}
	info, err := content.Stat()
	if err != nil {
		return err
	}
	_, err = b.client.PutObject(ctx, b.name, b.prefix+name, readerOf(ctx, content), info.Size(), minio.PutObjectOptions{
		ContentType: "application/octet-stream", ServerSideEncryption: b.sse,
	})
	if err == nil {
		return nil
	}
	// The client could not clear up if the context has ended. Or only the answer was lost.
	ended := ctx.Err() != nil
	ctx, cancel := toDelete(ctx)
	defer cancel()
	if ended {
		err = errors.Join(err, b.client.RemoveIncompleteUpload(ctx, b.name, b.prefix+name))
	}
	return errors.Join(err, b.Delete(ctx, name))
}

// Open implements Target.
func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	object, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := object.Stat(); err != nil { // the request is made here
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			err = fmt.Errorf("%s in %s: %w", name, b, ErrNoBackup)
		}
		return nil, errors.Join(err, object.Close())
	}
	return object, nil
}

// Delete implements Target.
func (b *bucket) Delete(ctx context.Context, name string) error {
	return b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
}
