// Package ampcors is CORS middleware for APIs that AMP pages call: from AMP Caches, from
// their publisher's own origin, and from AMP emails. It answers the pages of listed
// publishers, and denies those of all others.
//
// An AMP page in an AMP Cache runs at the cache's origin: www.example.com appears at
// https://www-example-com.cdn.ampproject.org. When the page calls its publisher's
// API, the API sees that origin and must tell whose page it is, because anybody's
// page can be in the cache. This package reverses the origin into the publisher's
// domain and looks up whether that publisher is allowed; only then does the page get
// Access-Control-Allow-Origin, and only then does an unsafe request reach the
// handler. A prefix that is a hash cannot be reversed; it is looked up among the
// hashes of the publishers that are listed, or by a [Source].
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
// Sound: an accepted cache origin names exactly one publisher domain, and that
// domain is allowed.
//
// Complete: every form that a known implementation issues for an allowed publisher
// is accepted, unless it is also a form of another domain. The exceptions are named
// below.
//
// Implementations disagree on the prefix of many domains, and nobody outside knows
// which form a cache uses. So this package does not compute the one origin that it
// expects. It decodes what came, and denies what does not decode to one publisher:
//
//   - The value is "https://", one label, "." and the domain of a trusted cache, and
//     nothing else. The label is the domain prefix.
//   - A prefix without a dash, a hash prefix, is 52 characters of base32 that spell the
//     SHA-256 of a publisher that is listed exactly, or that the Source knows. Each one's hash is
//     accepted, whatever its readable form. A pattern such as "*.example.com" matches
//     no hash.
//   - A prefix with a dash is decoded from punycode if it begins "xn--"; then "0-"
//     and "-0" around it are taken away; then, from left to right, "--" is a hyphen
//     and "-" is a dot. An ASCII prefix is wrapped in "0-" and "-0" exactly if it has
//     dashes at positions 3 and 4; an internationalised one may be wrapped or not,
//     since implementations count positions differently.
//   - The domain that results has at least two labels, none of which begins or ends
//     with a hyphen, and its last label is not a number.
//
// Four consequences are worth knowing:
//
//   - A host that has a label with a hyphen at its edge ("a-.example.com") cannot be a
//     publisher. "a-.b.com" and "a.-b.com" have one prefix between them.
//   - A prefix that begins "xn--" is punycode. AMP's own implementations also leave
//     the prefix of "xn-shop.com" unwrapped, as "xn--shop-com". This is accepted if
//     it is not punycode of a name with a dot, as here. If it is, it is taken for that
//     name: "xn--foo-ru-com" is "fo\u08fao.ru" and never "xn-foo.ru.com". A cache
//     that gave both of them this prefix would give them one origin in every browser
//     as well.
//   - A first label that begins "xn-" and is internationalised besides ("xn-é.com")
//     is accepted wrapped and hashed, but not in the form that AMP's implementations
//     give it, which holds a reserved label.
//   - A prefix in which an A-label is left undecoded is denied: the algorithm decodes
//     it first.
//
// An own origin is "https://" and an allowed publisher's domain, at the default port.
// No host of an AMP Cache is a publisher, whatever a pattern matches or a Source says: not of
// those that are trusted, and not of those in [DefaultCaches]. Nor is one of their third-party
// frames.
//
// # What is decided
//
// Origin decides, and outranks AMP-Same-Origin; the query's __amp_source_origin is
// the caller's claim and never changes a decision on a website's request. A request
// with an Origin that is not allowed is denied, unless Sec-Fetch-Site says that it is
// the API host's own page. A request without Origin passes if it is safe (GET, HEAD,
// OPTIONS), or if it has AMP-Same-Origin and nothing says that it comes from another
// site. Every response but those to OPTIONS has Vary: Origin, in one line with what was there. A
// denial is never stored by caches. The README has the whole
// table.
//
// AMP emails have no origin but a sender. Config.Email says which senders are allowed;
// without it, their requests are decided like all others: see [Email].
//
// # Publishers in a file or a database
//
// Config.Publishers is a list in memory; a million take about 120 MiB, and package
// configfile reads and follows one in a file. Publishers that are in a database, and come
// and go, are asked for by a [Source]; packages source/sqlsource and source/redissource are
// two. Its answers are remembered for [Lookup].TTL, which is how long a revoked publisher
// can still get in while the Source works, unless [Middleware.Forget] is called or the Source
// is a [Notifier]. A publisher in use is asked for again before that, while requests go on.
//
// If the Source fails, a publisher that it confirmed within [Lookup].MaxStale goes on
// getting in, and everybody else is answered with status 503 and Retry-After, and neither
// let in nor remembered as denied. [ReasonSourceUnavailable], Decision.SourceErr and
// [Middleware.SourceStats] say why. Invented origins reach the Source at a limited rate.
// While they come faster than that, a publisher that is not yet remembered may get 503 as
// well.
//
// # Where to put it
//
// Before the router, or before a whole router that another one mounts: preflights must
// reach it. Behind a single route they do not, because no route is found for their
// OPTIONS: not behind a ServeMux pattern with a method, not with chi's With and Group,
// not in a gin group without a route for OPTIONS. A framework that has handlers of its
// own must stop when [Middleware.Handle] returns false: gin with Abort, as gin.WrapH
// would run the handler after the denial. fiber uses a request's memory again, so what
// Config.Observe keeps must be cloned. examples/frameworks has a program for each, and
// examples of what goes wrong.
//
// Files that anybody may read, such as most fonts, need nothing of this: serve them with
// Access-Control-Allow-Origin "*", which AMP Caches repeat. Files that only publishers
// may read can be served behind it like all else, each publisher's at a URL of its own,
// because a cache may keep one copy with the first one's header.
//
// # What is not protected
//
// This package protects readers' cookies and publishers' data from other pages in
// readers' browsers. It does not authenticate programs: anybody can send any Origin
// without a browser. It trusts that the configured caches serve a publisher's
// documents under that publisher's prefix alone, and that the domains of the caches
// belong to them: see [Cache]. It trusts Sec-Fetch-Site, as browsers do not let
// pages set it. A publisher that is allowed can read what its page's reader can read;
// a page with a cross-site scripting hole is still that publisher's page.
//
// The ResponseWriter is the server's own, so a handler can undo what is decided here.
// One that sets Access-Control-Allow-Origin replaces it, and one that adds it sends
// two, which browsers reject. One that sets Vary lets a shared cache give one publisher's
// answer to another, and so does one that adds a line, with nginx before 1.23. Package guard, a
// module of its own, keeps handlers from that.
//
// # Beside it
//
// Package cacheurl has the whole URLs of AMP Caches, updatecache asks the caches to fetch
// a document again, and indexnow tells search engines of it. This package uses none of
// them.
//
// # Sources
//
//   - AMP Cache URL Format and Request Handling:
//     https://amp.dev/documentation/guides-and-tutorials/learn/amp-caches-and-cors/amp-cache-urls/
//   - CORS in AMP:
//     https://amp.dev/documentation/guides-and-tutorials/learn/amp-caches-and-cors/amp-cors-requests/
//   - CORS in AMP for Email:
//     https://amp.dev/documentation/guides-and-tutorials/email/learn/cors-in-email
//   - The Fetch standard's CORS protocol: https://fetch.spec.whatwg.org/#http-cors-protocol
//   - Punycode: RFC 3492. Internationalised names: RFC 5890 to 5893.
package ampcors
