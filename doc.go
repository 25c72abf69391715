// Package ampcors is CORS middleware for APIs that AMP pages call: from AMP Caches, from their publisher's own
// origin, and from AMP emails. It answers the pages of listed publishers, and denies all others.
//
// An AMP page in an AMP Cache runs at the cache's origin: www.example.com appears at
// https://www-example-com.cdn.ampproject.org. When the page calls its publisher's API, the API sees that origin
// and must find out which publisher the page belongs to, because the cache holds pages of everybody. This
// package reverses the origin into the publisher's domain and looks up whether that publisher is allowed. Only
// then does the page get Access-Control-Allow-Origin, and only then does an unsafe request reach the handler.
//
//	mw, err := ampcors.New(ampcors.Config{
//		Publishers:   []string{"www.example.com", "*.news.example"},
//		Credentialed: true,
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	http.ListenAndServe(":8080", mw.Wrap(api))
//
// # What is promised
//
// Sound: an accepted cache origin names exactly one publisher domain, and that domain is allowed. Exceptions:
// see "Hosts that share a prefix" in package cacheurl.
//
// Complete: every form that a known implementation issues for a listed publisher is accepted, unless it is also a
// form of another domain. Exceptions: see "How a prefix is read" in package cacheurl. (A pattern matches no hash
// prefix.)
//
// proof/README.md lists all promises, and the tests that hold most of them.
//
// The Origin of a cache is "https://", one label, "." and the domain of a trusted cache, and nothing else. The
// label is the domain prefix. Implementations disagree on the prefix of many domains, and it is not public
// which form a cache uses. So this package does not compute one expected origin. It decodes the prefix, and
// denies one that does not decode to exactly one publisher: package [github.com/ampcors/ampcors/cacheurl] says
// how, and where this differs from AMP's document.
//
// A hash prefix, which has no dash, cannot be reversed. It is accepted if it is the hash of an exactly listed
// publisher, or of one that the Source finds by its hash, even for names that have a readable prefix. A pattern such
// as "*.example.com" matches no hash prefix. The hashes of all listed publishers are computed when the Middleware is
// made. An LRU of at most 4,096 prefixes is in front of them. An evicted prefix costs a base32 decoding, a binary
// search and one SHA-256; its decision is the same.
//
// Some hosts share a prefix, so that no server can tell their pages apart. If a prefix can be read as two possible
// hosts, it is denied, with [ReasonAmbiguousPrefix]; the publisher's own origin and its hash prefix still get in, and
// [Config.Warnings] lists such publishers. Other shared prefixes cannot be denied by a rule: see "Hosts that share a
// prefix" in package cacheurl.
//
// A publisher may be written in Unicode. Which letters are valid depends on the version of Unicode that
// golang.org/x/net/idna has: Unicode 15 before Go 1.27, Unicode 17 since. A list that is accepted by a server built
// with one Go release may therefore be rejected by one built with the other. A-labels ("xn--...") are the same for
// both, and so is how an Origin is read.
//
// A publisher's own origin is "https://" followed by its domain, without a port. A host of an AMP Cache or of
// its third-party frames is never a publisher, even if a pattern matches it or a Source confirms it. This holds
// for the trusted caches and for all of [cacheurl.DefaultCaches].
//
// # What is decided
//
// Origin decides, and outranks AMP-Same-Origin; the query's __amp_source_origin is the caller's claim and never
// changes a decision on a website's request. A request with an Origin that is not allowed is denied, unless
// Sec-Fetch-Site says that it is from the API host's own page and it is no preflight. Several Origin lines of a
// website's request are always denied. A request without Origin passes if it is safe (GET, HEAD, OPTIONS), or if it
// has AMP-Same-Origin and no Sec-Fetch-Site other than same-origin. Every response has Vary: Origin. Responses to
// OPTIONS also vary by Access-Control-Request-Method and -Headers, because some shared caches store them. If an outer
// handler has set Vary, its members are kept, in one line. A denial is never stored by caches. docs/requests.md has
// the whole table.
//
// AMP emails have a sender instead of an origin. Config.Email says which senders are allowed. If it is zero,
// their requests are decided like all others: see [Email].
//
// # Publishers in a file or a database
//
// Config.Publishers is a list in memory; a million take about 60 MB. Package configfile reads such a list from a
// file, and applies its changes. For publishers in a database that change often, there is package source, with
// packages sqlsource, pgsource and redissource below it. A program makes one [source.Source], and gives it to any
// number of Middlewares as Config.Source. Publishers that the database confirms are remembered for
// [source.Config].TTL. While the database works, a revoked publisher is denied after at most TTL, or at once if the
// program calls [source.Source.Forget] or the database reports changes. A publisher in use is refreshed in the
// background before its TTL is over.
//
// If the Source fails, publishers that it confirmed within MaxStale still get in. If no answer is remembered, a
// request gets status 503 and Retry-After, and the failure is not remembered as a denial.
// [ReasonSourceUnavailable], Decision.SourceErr and [source.Source.Stats] say why. Only a limited number of
// lookups run at one time. If too many wait because of invented origins, a publisher that is not yet remembered
// may also get 503.
//
// # Where to put it
//
// Wrap the router: a router of net/http, chi, gin or echo is an [http.Handler], so Wrap(router) sees every request
// before the router does. Preflights must reach the Middleware. They do not reach it behind a route that names a
// method, because such a route does not match OPTIONS. So do not put it behind a ServeMux pattern with a method,
// chi's With and Group, or a gin group. A framework that has handlers of its own must stop if [Middleware.Handle]
// returns false for proceed. In gin, call Abort (gin.WrapH does not), or the handler runs after the denial. fiber
// reuses the memory of requests: clone strings before Config.Observe stores them. Package ampcorstest checks a
// router. The folder examples has a program for each framework. Its README and the comments name usual mistakes.
//
// Files that anybody may read, such as most fonts, do not need this package: serve them with
// Access-Control-Allow-Origin "*", and AMP Caches send the same header with their copies. Files that only publishers
// may read can be served behind the Middleware like everything else. Give each publisher its own URLs for such files:
// a cache that ignores Vary keeps one copy, with the first publisher's Access-Control-Allow-Origin.
//
// # What is not protected
//
// This package protects readers' cookies and publishers' data from other pages in readers' browsers. It does not
// authenticate programs: anybody can send any Origin without a browser. It trusts that the configured caches
// serve a publisher's documents only under that publisher's prefix, and that the domains of the caches belong to
// them: see [cacheurl.Cache]. A cache serves documents that it fetched over http (/c/) and over https (/c/s/) at
// one origin. So the cached copy of an http page is accepted, even where own origins with http are denied.
//
// Cookies with the attribute Partitioned (CHIPS) do not separate publishers on a cache: browsers
// partition by site, and all of cdn.ampproject.org is one. A cookie that your API sets for a page of
// one publisher is also sent from cached pages of all others.
//
// Publishers are not kept apart from each other: each may call every path, and read what the reader of
// its page may read. If paths belong to tenants, ask [Decision.IsFor] with the tenant's domain.
//
// This package trusts Sec-Fetch-Site, because browsers do not let pages set it. A page with a
// cross-site scripting bug is still its publisher's page.
//
// The handler gets the server's own ResponseWriter, so it can change the headers. A handler that sets
// Access-Control-Allow-Origin replaces ours; one that adds it makes browsers reject the response, which then has two.
// If it replaces Vary, a shared cache may give one publisher's response to another. With nginx before 1.23, an added
// Vary line has the same effect. A [net/http/httputil.ReverseProxy] as the handler adds the backend's headers, and
// clears all headers after a 1xx response of the backend, such as 103 Early Hints. (Expect is removed, so no client
// can cause 100 Continue, except over HTTP/3.) Package guard prevents all this.
//
// # Sources
//
//   - AMP Cache URL Format and Request Handling:
//     https://amp.dev/documentation/guides-and-tutorials/learn/amp-caches-and-cors/amp-cache-urls/
//   - CORS in AMP:
//     https://amp.dev/documentation/guides-and-tutorials/learn/amp-caches-and-cors/amp-cors-requests/
//   - CORS in AMP for Email: https://amp.dev/documentation/guides-and-tutorials/email/learn/cors-in-email
//   - The Fetch standard's CORS protocol: https://fetch.spec.whatwg.org/#http-cors-protocol
//   - Punycode: RFC 3492. Internationalized names: RFC 5890 to 5893.
package ampcors
