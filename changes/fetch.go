package changes

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// A fetched is the answer to a request for a file.
type fetched struct {
	data        []byte   // not compressed
	at          *url.URL // after redirects
	notModified bool     // since the last time
	state       File
}

// fetch fetches a file, unless it has not been modified since the last time.
func (r *Reader) fetch(ctx context.Context, file *url.URL, known File) (fetched, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, file.String(), nil)
	if err != nil {
		return fetched{}, err
	}
	request.Header.Set("User-Agent", r.cfg.UserAgent)
	for header, value := range map[string]string{"If-None-Match": known.ETag, "If-Modified-Since": known.LastModified} {
		if value != "" {
			request.Header.Set(header, value)
		}
	}
	resp, err := r.http.Do(request)
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL, which Error has
	}
	if err != nil {
		return fetched{}, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotModified:
		return fetched{notModified: true, state: known}, nil
	case http.StatusOK:
	default:
		return fetched{}, fmt.Errorf("the answer is %d; want 200", resp.StatusCode)
	}
	at := file
	if resp.Request != nil { // a Transport need not set it
		at = resp.Request.URL
	}
	data, err := r.read(resp.Body)
	return fetched{data: data, at: at, state: File{ETag: resp.Header.Get("ETag"), LastModified: resp.Header.Get("Last-Modified")}}, err
}

// read reads a file, and decompresses it.
func (r *Reader) read(body io.Reader) ([]byte, error) {
	buffered := bufio.NewReader(body)
	body = buffered
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" { // a file such as sitemap.xml.gz
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		body = unzipped
	}
	data, err := io.ReadAll(io.LimitReader(body, r.cfg.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > r.cfg.MaxBytes {
		return nil, fmt.Errorf("it has more than %d bytes", r.cfg.MaxBytes)
	}
	return data, nil
}
