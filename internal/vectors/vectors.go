// Package vectors reads the files of the folder conformance. Their schema takes its descriptions from the
// comments of the fields.
package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// A File has one kind of vectors, and what they refer to.
type File struct {
	Schema  string            `json:"$schema"`           // path of this schema
	About   string            `json:"about"`             // what the vectors show
	Sources map[string]string `json:"sources,omitempty"` // who published a vector, by short name
	// implementations that cannot be run here, and how their answers were obtained
	Transcribed map[string]string `json:"transcribed,omitempty"`
	// why a vector differs from what others do, by short name
	Notes   map[string]string `json:"notes,omitempty"`
	Reasons map[string]Reason `json:"reasons,omitempty"` // the possible answers, by name
	// configurations, by name. docs/configuration.md and README.md say what their members mean
	Policies map[string]json.RawMessage `json:"policies,omitempty"`
	// name of the file with the RSA key that signs, in PEM. The key is public, and only for tests
	Key string `json:"key,omitempty"`

	// domains, and every form of their prefix below an AMP Cache
	Prefixes []DomainPrefixes `json:"prefixes,omitempty"`
	Domains  []PrefixDomain   `json:"domains,omitempty"` // prefixes, and their domain
	// values of the header Origin, and whether they are allowed
	Origins   []Origin   `json:"origins,omitempty"`
	Requests  []Request  `json:"requests,omitempty"`  // requests, and their answers
	CacheURLs []CacheURL `json:"cacheURLs,omitempty"` // URLs of publishers, and the same on an AMP Cache
	// signatures, and requests that ask a cache to fetch a page again
	UpdateCache []UpdateCache `json:"updateCache,omitempty"`
	IndexNow    []IndexNow    `json:"indexNow,omitempty"` // URLs, and the requests that submit them
}

// A Reason is why an origin or a request is allowed or denied.
type Reason struct {
	Allowed bool   `json:"allowed"` // whether it is allowed
	Rule    string `json:"rule"`    // the rule, in one sentence
	Section string `json:"section"` // URL of the section of the standard from which the rule follows
}

// A DomainPrefixes has a domain, and every form of its prefix.
type DomainPrefixes struct {
	ID     string `json:"id"`              // for citations; it never changes
	Domain string `json:"domain"`          // as people may write it
	ASCII  string `json:"ascii,omitempty"` // the domain in lower case and A-labels, if that is another spelling
	// the last one is the hash prefix. If there is a problem, these are only what others give the domain
	Prefixes []Form `json:"prefixes,omitempty"`
	Problem  string `json:"problem,omitempty"` // for people: why it cannot be a publisher, if it cannot
	Note     string `json:"note,omitempty"`    // one of the notes
	Disagree bool   `json:"disagree,omitzero"` // whether implementations give it different prefixes
}

// A Form is a prefix of a domain.
type Form struct {
	Prefix    string   `json:"prefix"`              // the prefix, in lower case
	By        []string `json:"by,omitempty"`        // the implementations that give it
	Published []string `json:"published,omitempty"` // the sources that have it
	// whether a server must not accept it for this domain, for the reason in the note
	Denied bool   `json:"denied,omitzero"`
	Note   string `json:"note,omitempty"` // one of the notes
}

// A PrefixDomain has a prefix, and its domain if it has one.
type PrefixDomain struct {
	ID      string `json:"id"`                // for citations; it never changes
	Prefix  string `json:"prefix"`            // a label below the domain of an AMP Cache
	Domain  string `json:"domain,omitempty"`  // in lower case and A-labels
	Problem string `json:"problem,omitempty"` // for people: why it has no domain, if it has none
}

// An Origin has a value of the header Origin, and whether it is allowed.
type Origin struct {
	ID        string `json:"id"`                  // for citations; it never changes
	Policy    string `json:"policy"`              // one of the policies
	Name      string `json:"name"`                // what kind of origin it is
	Origin    string `json:"origin"`              // the value of the header
	Reason    string `json:"reason"`              // one of the reasons
	Publisher string `json:"publisher,omitempty"` // the allowed publisher that it names
	Claimed   string `json:"claimed,omitempty"`   // the publisher that a denied origin names
	Cache     string `json:"cache,omitempty"`     // ID of the AMP Cache that the origin ends with
	Source    string `json:"source,omitempty"`    // one of the sources, which allows the origin
}

// A Request has a request, and its answer.
type Request struct {
	ID      string   `json:"id"`                // for citations; it never changes
	Policy  string   `json:"policy"`            // one of the policies
	Name    string   `json:"name"`              // what kind of request it is
	Method  string   `json:"method"`            // case matters
	Query   string   `json:"query,omitempty"`   // as it is sent, without "?"
	Headers []string `json:"headers,omitempty"` // of the request, as "Name: value"
	Reason  string   `json:"reason"`            // one of the reasons in origins.json
	Status  int      `json:"status,omitempty"`  // of the answer, if the request does not go on to the API
	// all headers of the answer with a name that begins with Access-Control- or AMP-, Vary and Cache-Control.
	// The order does not matter
	Response []string `json:"response,omitempty"`
	// what @ampproject/toolbox-cors does, if that is something else: it denies, passes (without
	// Access-Control-Allow-Origin), allows (with it) or answers a preflight. It was run with the policy
	// "credentialed"
	Toolbox string `json:"toolbox,omitempty"`
}

// A CacheURL is the URL of a page, or of another file, on an AMP Cache.
type CacheURL struct {
	ID     string `json:"id"`               // for citations; it never changes
	URL    string `json:"url,omitempty"`    // the publisher's. Without it, the vector is only about reading cacheURL
	Type   string `json:"type,omitempty"`   // the content type in the path, such as "c"
	Prefix string `json:"prefix,omitempty"` // the domain prefix, if it is not the one by ampcors
	// the part of the path between the type "i" or "ii" and the host: segments of letters, digits, -, _, = and a
	// comma, other than s
	ImageParams string `json:"imageParams,omitempty"`
	CacheQuery  string `json:"cacheQuery,omitempty"` // the parameters of the cache and of its viewer
	Cache       string `json:"cache,omitempty"`      // domain of the cache, if it is not Google's
	CacheURL    string `json:"cacheURL,omitempty"`   // on the cache
	// the publisher's URL that cacheURL gives, if it is another spelling of url
	Canonical string `json:"canonical,omitempty"`
	Source    string `json:"source,omitempty"`  // one of the sources. It has the same, or what follows
	Instead   string `json:"instead,omitempty"` // the cache URL that the source has instead, for the reason in the note
	Note      string `json:"note,omitempty"`    // one of the notes
	Problem   string `json:"problem,omitempty"` // for people: why url or cacheURL is rejected
}

// An UpdateCache is a signature, or a signed request.
type UpdateCache struct {
	ID        string `json:"id"`                  // for citations; it never changes
	Text      string `json:"text,omitempty"`      // what is signed: the path and query of a URL, up to the time
	Signature string `json:"signature,omitempty"` // RSASSA-PKCS1-v1_5 with SHA-256, in base64url without padding
	URL       string `json:"url,omitempty"`       // the publisher's page
	Time      int64  `json:"time,omitempty"`      // of the request, in seconds since 1970
	Signed    string `json:"signed,omitempty"`    // the URL that is asked for, with the signature
	Source    string `json:"source,omitempty"`    // one of the sources
}

// An IndexNow has the requests that submit URLs.
type IndexNow struct {
	ID          string       `json:"id"`                    // for citations; it never changes
	Key         string       `json:"key"`                   // the key of the site
	KeyLocation string       `json:"keyLocation,omitempty"` // URL of its key file, if it is not at the root of the host
	URLs        []string     `json:"urls"`                  // what is submitted
	Requests    []Submission `json:"requests,omitempty"`    // the bodies of the POST requests, in this order
	Problems    []string     `json:"problems,omitempty"`    // for people: why each URL that is in no request is rejected
	Source      string       `json:"source,omitempty"`      // the section of IndexNow's document that has this example
}

// A Submission is the body of a POST request.
type Submission struct {
	Host        string   `json:"host"`                  // the host of the URLs
	Key         string   `json:"key"`                   // the key of the site
	KeyLocation string   `json:"keyLocation,omitempty"` // URL of its key file
	URLList     []string `json:"urlList"`               // escaped, without fragments
}

// Read reads a file. Members that it does not know are an error.
func Read(name string) (f File, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return f, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return f, fmt.Errorf("%s: something follows the object: %w", name, err)
	}
	return f, nil
}
