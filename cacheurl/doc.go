// Package cacheurl converts the URLs of a publisher's documents, images and files to the URLs under which an AMP Cache
// serves them, and back. It implements AMP's document "AMP Cache URL Format and Request Handling"
// (https://amp.dev/documentation/guides-and-tutorials/learn/amp-caches-and-cors/amp-cache-urls):
//
//	https://www.example.com/article?id=7
//	https://www-example-com.cdn.ampproject.org/c/s/www.example.com/article?id=7
//
// The package sends no requests, and does not know whether a cache has the document.
//
// # How a prefix is read
//
// A domain prefix is the first label of a cache origin. [PublisherDomain] reverses it, and [Prefixes] returns
// every form that an implementation gives a domain.
//
//   - A prefix without a dash, a hash prefix, is 52 characters of base32. They spell the
//     SHA-256 of the domain, and cannot be reversed.
//   - A prefix with a dash is decoded from punycode if it begins "xn--". Then "0-" and "-0" around it
//     are removed. Then it is read from left to right: "--" is a hyphen and "-" is a dot. ASCII
//     text is wrapped in "0-" and "-0" exactly if it has dashes at positions 3 and 4, except for
//     toolbox-cache-url's "xn--...", see below. An internationalized one may be wrapped or not, because
//     implementations count positions differently.
//   - The resulting domain has at least two labels. No label begins or ends with a hyphen,
//     and the last label is not a number.
//
// Four consequences are worth knowing:
//
//   - A host that has a label with a hyphen at its edge ("a-.example.com") cannot be a
//     publisher. "a-.b.com" and "a.-b.com" share one prefix.
//   - A prefix that begins "xn--" can be read in two ways: decoded from punycode, or as the prefix that
//     toolbox-cache-url leaves unwrapped ("xn-shop.com" as "xn--shop-com"). It is read undecoded if
//     it is not punycode, if the decoded name has no dot, or if only the undecoded name has a top-level
//     domain and has no A-label. It is denied if it is ambiguous: see below.
//     Otherwise it is decoded.
//   - A domain that has letters outside of ASCII and begins "xn-" ("xn-é.com") is accepted
//     as a wrapped prefix or as a hash prefix. toolbox-cache-url's form is denied, because it
//     still begins "xn--" when it is decoded.
//   - A prefix in which a label is still an A-label after these steps is denied, because AMP's
//     algorithm decodes A-labels before it writes a prefix.
//
// # What differs from AMP's document
//
// The hosts named below are among the vectors in conformance/prefixes.json. AMP's document numbers the
// steps of its algorithm.
//
//   - "a.-b.com", "foo-.example.com": the document allows a hyphen at the edge of a label. It is
//     rejected, because such labels share a prefix.
//   - "é-x.com", "éa-x.com": positions 3 and 4 are counted in code points by the document, in bytes
//     by amppackager, and in encoded bytes by AMP's toolbox. All three forms are accepted.
//   - "in--trouble.com" and "hello.xn--wgbh1c", which mixes directions of writing: the document has a
//     readable prefix, which is accepted. DomainPrefix returns the hash prefix, as both official
//     implementations do.
//   - "www.example.com": step 4, which adds "0-" and "-0", is for prefixes with dashes at positions 3
//     and 4. A prefix that is wrapped without need ("0-www-example-com-0") is denied, because no
//     implementation writes it.
//   - "en-us.example.com": the document says that step 5 encodes the output of step 3. Then step 4 would have
//     no effect. Here and in the official implementations, step 5 encodes the output of step 4.
//   - Names have at most 253 bytes. The document cites RFC 2181's limit of 255, which counts two bytes more
//     than the text has: the length bytes of the first label and of the root.
//   - "https://cdn.ampproject.org/c/s/www.example.com/": [Parse] rejects a URL without a domain prefix,
//     because it does not have the origin of one publisher. Some links still have this form. The
//     command ampcors cacheurl reads it.
//   - The document says that each domain has a prefix of its own. Some share one: see below.
//   - A cache URL needs a content type: [Parse] rejects the examples of the document that have none,
//     such as https://amp-dev.cdn.ampproject.org/amp.dev/documentation/.
//   - Content types here are c, v, wp, cert, i, ii and r. The document has no closed list, and does not name r, which
//     Google's documentation has.
//
// The English document is followed. Its translations, as they were on 2026-11-26, say other things in these places,
// and would give other prefixes:
//
//   - Korean: a dot becomes two dots, and a prefix of exactly 63 characters is too long. The tables of
//     the same text contradict that: there a dot becomes one hyphen, and a prefix is "limited to 63",
//     as in English.
//   - Arabic: a prefix of more than 63 characters is valid.
//   - Chinese: a hash prefix needs two reasons, such as too long and mixed directions.
//     In English and in both official implementations, one of these is enough.
//   - Russian: only single hyphens are doubled in step 2; toolbox-cache-url doubles each hyphen, also
//     in "hello--world". But step 5 of the Russian text encodes the output of step 4, which is right,
//     see above.
//   - Japanese: the domain is encoded as punycode first and decoded last; in English, decoded first
//     and encoded last.
//   - French and Italian: the example "a--b-example-com" becomes "ab.example.com". It is "a-b.example.com".
//   - Spanish, Turkish, Indonesian and Vietnamese: the text says that the hash is not in base32, but
//     its examples are in base32.
//
// # Hosts that share a prefix
//
// AMP's algorithm, or an official implementation of it, gives some hosts the prefix of
// another domain. Their pages then have one origin in every browser, and no server can tell
// them apart.
//
// By default, an ambiguous prefix is denied, with ampcors.ReasonAmbiguousPrefix. "www.lāstekas.lv" and
// "xn-www.lstekas.lv.pub" both get "xn--www-lstekas-lv-pub": for the first it is punycode, and for the second, which
// anybody can register, it is not. A prefix is ambiguous if both readings are possible names: decoded, a domain below
// a top-level domain; not decoded, a domain that ends in a top-level domain and has no A-label. (Top-level domains
// are the entries of the Public Suffix List's ICANN section, as golang.org/x/net/publicsuffix has it.) The
// publisher's own origin still gets in, and so does its hash prefix, if a cache uses that. ampcors.Config.Warnings
// lists such entries of Config.Publishers.
//
// Other shared prefixes cannot be denied by a rule, because each is the usual prefix of a valid domain.
// In each of these items, the prefix is read as the prefix of the second host:
//
//   - "abcd.-.evil.com" and "abcd--evil.com" share "abcd----evil-com", because a label "-" is
//     written like a hyphen.
//   - "xn--alice-.platform.com" and "alice.platform.com" share "alice-platform-com", and
//     "foo.xn--.evil.com" and "foo-evil.com" share "foo--evil-com", because these A-labels
//     decode to ASCII or to nothing.
//   - "xn---bbb.example" and "xn--xbbb.example" share "xn---example-6ojj" in toolbox-cache-url,
//     whose punycode decoder reads a hyphen at the start as "x", and accepts surrogates.
//   - "straße.de" and "strasse.de" share "strasse-de" in amppackager, which maps ß to ss and ς to
//     σ, and removes joiners (U+200C and U+200D). The document's prefix for the first is
//     "xn--strae-de-tya".
//   - "xn-é.shop.pub" and "éƕ.shop" share "xn---shop-9ra81j" in amppackager, which decodes its
//     own unencoded prefix "xn--..." if that is valid punycode.
//
// The first hosts of the first three items are not valid host names (RFC 952, RFC 5890), and
// [DomainPrefix] rejects them. A platform whose customers choose labels below its domain must not give
// out labels that begin or end with a hyphen, or that begin with "xn--" and are not punycode. The last
// two items matter only for a cache that uses amppackager's forms, and no cache is known to use them.
package cacheurl
