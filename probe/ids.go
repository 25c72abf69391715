package probe

// An ID names a kind of finding. Its meaning never changes. rules.go has what each one says.
type ID string

// The ids of all findings.
const (
	// The endpoint does not work.
	ACAOMissing             ID = "acao-missing"
	ACAOMismatch            ID = "acao-mismatch"
	ACAOBareCache           ID = "acao-bare-cache"
	ACAOPattern             ID = "acao-pattern"
	ACAODuplicate           ID = "acao-duplicate"
	ACAOSourceOrigin        ID = "acao-source-origin"
	ACACMissing             ID = "acac-missing"
	ACACInvalid             ID = "acac-invalid"
	ACACDuplicate           ID = "acac-duplicate"
	WildcardWithCredentials ID = "wildcard-with-credentials"
	VaryMissing             ID = "vary-missing"
	CachedWrongOrigin       ID = "cached-wrong-origin"
	SharedWrongOrigin       ID = "shared-wrong-origin"
	RevalidationWrongOrigin ID = "revalidation-wrong-origin"
	ExposeMissing           ID = "expose-missing"
	RedirectToInvalid       ID = "redirect-to-invalid"
	PreflightFailed         ID = "preflight-failed"
	PreflightRedirected     ID = "preflight-redirected"
	PreflightIncomplete     ID = "preflight-incomplete"
	ErrorWithoutCORS        ID = "error-without-cors"
	RedirectWithoutCORS     ID = "redirect-without-cors"
	RedirectEndless         ID = "redirect-endless"
	AnswersDiffer           ID = "answers-differ"
	HTTPError               ID = "http-error"
	NotJSON                 ID = "not-json"
	NotScript               ID = "not-script"
	HashOriginRefused       ID = "hash-origin-refused"
	PunycodeOriginRefused   ID = "punycode-origin-refused"
	OwnOriginRefused        ID = "own-origin-refused"
	CacheRefused            ID = "cache-refused"
	BrowserRefused          ID = "browser-refused"
	CookieNeeded            ID = "cookie-needed"

	// The endpoint allows other sites.
	AnyOriginAllowed          ID = "any-origin-allowed"
	AnyPublisherAllowed       ID = "any-publisher-allowed"
	AdFrameAllowed            ID = "ad-frame-allowed"
	NoClaimAllowed            ID = "no-claim-allowed"
	SourceOriginTrusted       ID = "source-origin-trusted"
	PrefixLookalikeAllowed    ID = "prefix-lookalike-allowed"
	NaivePrefixAllowed        ID = "naive-prefix-allowed"
	TwinAllowed               ID = "twin-allowed"
	LookalikeAllowed          ID = "lookalike-allowed"
	HostingAllowed            ID = "hosting-allowed"
	CacheLookalikeAllowed     ID = "cache-lookalike-allowed"
	NullAllowed               ID = "null-allowed"
	HTTPAllowed               ID = "http-allowed"
	SameOriginHeaderTrusted   ID = "same-origin-header-trusted"
	SameOriginGranted         ID = "same-origin-granted"
	SameOriginHeaderPreferred ID = "same-origin-header-preferred"
	RefererTrusted            ID = "referer-trusted"
	NoRefererAllowed          ID = "no-referer-allowed"
	LocalhostAllowed          ID = "localhost-allowed"
	DeadCacheAllowed          ID = "dead-cache-allowed"
	PortAllowed               ID = "port-allowed"
	OpenToAll                 ID = "open-to-all"
	UnsafeReachesHandler      ID = "unsafe-reaches-handler"
	UnsafeSeemsToRun          ID = "unsafe-seems-to-run"

	// Emails.
	EmailSenderRefused ID = "email-sender-refused"
	EmailV1Refused     ID = "email-v1-refused"
	EmailAnySender     ID = "email-any-sender"
	EmailOriginAllowed ID = "email-origin-allowed"
)

// Of rules that are told in a note, and are no findings.
const (
	userAgentMatters ID = "user-agent-matters"
	ownHostAllowed   ID = "own-host-allowed" // a problem only if another rule explains it
)
