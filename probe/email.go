package probe

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// This file tests the requests of AMP emails. A reader's mail client makes them, in Gmail's case by a proxy: no AMP Cache
// and no cookies are part of it. Sources: CORS in AMP for Email,
// https://amp.dev/documentation/guides-and-tutorials/email/learn/cors-in-email, and
// Gmail's requirements, https://developers.google.com/gmail/ampemail/security-requirements

const (
	emailSender  = "AMP-Email-Sender"
	allowSender  = "AMP-Email-Allow-Sender"
	sourceOrigin = "AMP-Access-Control-Allow-Source-Origin"
)

// planEmails returns the trials of an endpoint for the emails of a sender.
func (p *prober) planEmails(e *Endpoint, sender string) *cell {
	c := &cell{p: p, e: e, publisher: sender, isEmail: true}
	clients := p.cfg.MailClients
	if clients == nil {
		clients = []string{"https://mail.google.com"}
	}
	version2 := func(sender string) step {
		return step{mode: direct, isProxied: true, header: http.Header{http.CanonicalHeaderKey(emailSender): {sender}}}
	}
	version1 := func(sender string) step { return step{mode: direct, isProxied: true, claims: []string{sender}} }

	c.add(KindEmails, "version 2", page{}, EmailSenderRefused, version2(sender))
	for _, client := range clients {
		c.add(KindEmails, "version 1 at "+client, page{origin: client}, EmailV1Refused, version1(sender))
	}
	local, domain, _ := strings.Cut(sender, "@")
	for _, other := range []string{"probe@" + evilHost, local + "@" + evilHost, local + "@x" + domain, sender + "." + evilHost, "*"} {
		c.add(KindSenders, "the sender "+other+", version 2", page{}, EmailAnySender, version2(other))
	}
	c.add(KindSenders, "a request that names no sender", page{}, EmailAnySender, step{mode: direct, isProxied: true})
	for _, client := range clients {
		c.add(KindSenders, "the sender probe@"+evilHost+" at "+client+", version 1", page{origin: client}, EmailAnySender, version1("probe@"+evilHost))
	}
	c.add(KindSenders, "another website that names the sender", page{origin: evil}, EmailOriginAllowed, step{mode: direct, claims: []string{sender}})
	c.skipUnsafe()
	return c
}

// runEmails sends the trials, and then the first one again: if it is answered in another way, the others prove nothing.
func (c *cell) runEmails(ctx context.Context, done func(*trial)) {
	for _, t := range c.trials {
		switch first := c.trials[0]; {
		case t.Outcome == NotTested:
		case t != first && first.answers[0].err != nil:
			t.skip(first.answers[0].err.Error(), false) // the others would wait as long
		default:
			c.ask(ctx, t)
		}
	}
	if first := c.trials[0]; first.Outcome != NotTested && first.answers[0].err == nil {
		c.requests++
		if again := c.send(ctx, first, first.steps[0]); again.err != nil || again.status() != first.answers[0].status() {
			reason := fmt.Sprintf("the sender's own request, which is repeated as a control, is answered with status %d now, and was with %d",
				again.status(), first.answers[0].status())
			if again.err != nil {
				reason = "the sender's own request, which is repeated as a control, failed: " + again.err.Error()
			}
			for _, t := range c.trials {
				t.skip(reason, false)
			}
		}
	}
	for _, t := range c.trials {
		done(t)
	}
}

// judgeEmails gives each trial that was sent its outcome.
func (c *cell) judgeEmails() {
	for _, t := range c.trials {
		if t.Outcome == NotTested {
			continue
		}
		a := t.answers[0]
		_, resp := a.last()
		switch {
		case a.err != nil:
			t.skip(a.err.Error(), false)
		case isOverloaded(resp.Status):
			t.skip(fmt.Sprintf("the backend limits requests, or is down (status %d)", resp.Status), false)
		case t.Kind == KindEmails:
			c.tested = true
			if t.remark = missingForEmail(t, resp); t.remark == "" {
				t.Outcome, t.Works = Fine, true
			} else {
				t.Reason = t.remark
				t.blame(t.id, a)
			}
		case t.id == EmailOriginAllowed:
			if t.Outcome = Fine; resp.Status >= 400 || checkCORS(evil, false, resp.Header) != nil {
				continue
			}
			if t.IsPublic = resp.Header.Get("Access-Control-Allow-Origin") == "*"; !t.IsPublic {
				t.remark = "a browser lets every website that names the sender read it"
				t.blame(t.id, a)
			}
		default:
			c.judgeOtherSender(t, a)
		}
	}
}

// judgeOtherSender judges a request that names another sender, or none.
func (c *cell) judgeOtherSender(t *trial, a *answer) {
	t.Outcome = Fine
	_, resp := a.last()
	allowed := resp.Header.Get(allowSender)
	_, own := c.trials[0].answers[0].last()
	switch {
	case t.origin != "":
		if resp.Status < 400 && checkCORS(t.origin, false, resp.Header) == nil && resp.Header.Get(sourceOrigin) == t.steps[0].claims[0] {
			t.remark = "a mail client lets the email of this sender read it"
			t.blame(t.id, a)
		}
	case resp.Status >= 400 || allowed == "":
	case allowed == "*" && own != nil && own.Header.Get(allowSender) == "*":
		t.IsPublic = true // which AMP's document allows: the emails of everybody may read it
	case allowed == "*" || allowed == t.steps[0].header.Get(emailSender):
		t.remark = "a mail client lets the email of this sender read it"
		t.blame(t.id, a)
	}
}

// missingForEmail returns why a mail client rejects the answer to a sender's email, or "".
func missingForEmail(t *trial, resp *response) string {
	if resp.Status >= 400 {
		return fmt.Sprintf("a mail client rejects an answer with status %d", resp.Status)
	}
	if t.origin == "" {
		sender := t.steps[0].header.Get(emailSender)
		if got := resp.Header.Values(allowSender); len(got) != 1 || got[0] != "*" && got[0] != sender {
			return fmt.Sprintf("a mail client wants %s: %s exactly once", allowSender, sender)
		}
		return ""
	}
	sender := t.steps[0].claims[0]
	exposed := strings.FieldsFunc(strings.ToLower(strings.Join(resp.Header.Values("Access-Control-Expose-Headers"), ",")), func(r rune) bool { return r == ',' || r == ' ' })
	switch got := resp.Header.Values(sourceOrigin); {
	case checkCORS(t.origin, false, resp.Header) != nil:
		return "a mail client wants Access-Control-Allow-Origin: " + t.origin
	case len(got) != 1 || got[0] != sender:
		return fmt.Sprintf("a mail client wants %s: %s exactly once", sourceOrigin, sender)
	case !slices.Contains(exposed, strings.ToLower(sourceOrigin)) && !slices.Contains(exposed, "*"):
		return "a mail client wants Access-Control-Expose-Headers: " + sourceOrigin
	}
	return ""
}
