package probe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// This file judges the requests of AMP emails. A reader's mail client makes them, in Gmail's case by a proxy: no
// AMP Cache and no cookies are part of it. Sources: CORS in AMP for Email,
// https://amp.dev/documentation/guides-and-tutorials/email/learn/cors-in-email, and Gmail's requirements,
// https://developers.google.com/gmail/ampemail/security-requirements

const (
	emailSender  = "AMP-Email-Sender"
	allowSender  = "AMP-Email-Allow-Sender"
	sourceOrigin = "AMP-Access-Control-Allow-Source-Origin"

	playground, playgroundSender = "https://amp.gmail.dev", "amp@gmail.dev"
)

// isAcceptedV2 and isAcceptedV1 are the verdicts on the sender's own email.
func (c *cell) isAcceptedV2(t *trial) ruling {
	a := t.got(told)
	_, resp := a.last()
	if got := resp.Header.Values(allowSender); resp.Status < 400 &&
		(len(got) != 1 || got[0] != "*" && got[0] != c.sender) {
		return rejected(a, fmt.Sprintf("a mail client wants %s: %s exactly once", allowSender, c.sender))
	}
	return acceptedBelow400(a)
}

func (c *cell) isAcceptedV1(t *trial) ruling {
	a := t.got(told)
	_, resp := a.last()
	exposed := strings.FieldsFunc(strings.ToLower(strings.Join(resp.Header.Values("Access-Control-Expose-Headers"), ",")),
		func(r rune) bool { return r == ',' || r == ' ' })
	switch got := resp.Header.Values(sourceOrigin); {
	case resp.Status >= 400:
	case checkCORS(t.origin, false, resp.Header) != nil:
		return rejected(a, "a mail client wants Access-Control-Allow-Origin: "+t.origin)
	case len(got) != 1 || got[0] != c.sender:
		return rejected(a, fmt.Sprintf("a mail client wants %s: %s exactly once", sourceOrigin, c.sender))
	case !slices.Contains(exposed, strings.ToLower(sourceOrigin)) && !slices.Contains(exposed, "*"):
		return rejected(a, "a mail client wants Access-Control-Expose-Headers: "+sourceOrigin)
	}
	return acceptedBelow400(a)
}

func acceptedBelow400(a *answer) ruling {
	if a.status() >= 400 {
		return rejected(a, fmt.Sprintf("a mail client rejects an answer with status %d", a.status()))
	}
	return fine()
}

func rejected(a *answer, why string) ruling {
	v := broken(a, why)
	v.reason = why
	return v
}

// isOtherSenderDenied is the ruling on a request that names another sender, or none.
func (c *cell) isOtherSenderDenied(t *trial) ruling {
	a := t.turns[0]
	_, resp := a.last()
	_, own := c.control.turns[0].last()
	isRead := false
	switch allowed := resp.Header.Get(allowSender); {
	case resp.Status >= 400:
	case t.origin != "": // version 1
		isRead = checkCORS(t.origin, false, resp.Header) == nil && resp.Header.Get(sourceOrigin) == a.claims[0]
	case allowed == "*" && own.Header.Get(allowSender) == "*":
		return ruling{Outcome: Fine, isPublic: true} // which AMP's document allows: the emails of everybody may read it
	default:
		isRead = allowed != "" && (allowed == "*" || allowed == a.header.Get(emailSender))
	}
	if isRead {
		return broken(a.answer, "a mail client lets the email of this sender read it")
	}
	if t.origin == "" && a.header.Get(emailSender) == "" && resp.Status < 300 {
		c.note(c.e.URL + " answers a request that names no sender with status " + strconv.Itoa(resp.Status) +
			". No mail client gives that answer to an email, but " +
			"any program can read it, unless the URL has a token that only the reader knows.")
	}
	return fine()
}

// isWebsiteDenied is the ruling on a website that names the sender.
func (c *cell) isWebsiteDenied(t *trial) ruling {
	a := t.got(told)
	_, resp := a.last()
	switch {
	case resp.Status >= 400 || checkCORS(evil, false, resp.Header) != nil:
		return fine()
	case resp.Header.Get("Access-Control-Allow-Origin") == "*":
		return ruling{Outcome: Fine, isPublic: true}
	}
	return broken(a, "a browser lets every website that names the sender read it")
}
