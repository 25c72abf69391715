package probe

import (
	"fmt"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// This file reads forms as amp-form/0.1/amp-form.js and src/core/dom/form.js of amphtml do.

const (
	maxFields = 1000     // more than a form of a page has
	maxBody   = 64 << 10 // more bytes than the fields of a form have that nobody has filled in
)

// form adds the requests of a form, with its fields as the page has them: in the URL with GET, and otherwise in the
// body. In the URLs of a form, no variable is expanded.
func (f *finder) form(n *html.Node) {
	e := Endpoint{Method: http.MethodGet, Credentials: true, Answer: AnswerForm}
	if strings.EqualFold(attr(n, "method"), http.MethodPost) {
		e.Method, e.ContentType = http.MethodPost, typeMultipart
		if attr(n, "enctype") == typeURLEncoded {
			e.ContentType = typeURLEncoded
		}
	}
	fields, toVerify := fieldsOf(n)
	if len(fields) > maxFields {
		f.addUnknown("amp-form", fmt.Sprintf("a form with more than %d fields", maxFields))
		return
	}
	verify := e
	verify.Answer = AnswerVerify
	if hasAttr(n, "xssi-prefix") {
		e.Answer = AnswerAny
	}
	f.addForm(attr(n, "action-xhr"), e, fields)
	if value := attr(n, "verify-xhr"); value != "" && e.ContentType == typeURLEncoded {
		f.addUnknown("amp-form", "verify-xhr, "+short(value)+": with enctype "+typeURLEncoded+", the runtime throws an error")
	} else {
		f.addForm(value, verify, append(toVerify, [2]string{"__amp_form_verify", "true"}))
	}
}

// addForm adds a request of a form with these fields.
func (f *finder) addForm(value string, e Endpoint, fields [][2]string) {
	if value == "" {
		return
	}
	var query []string
	body := new(strings.Builder)
	parts := multipart.NewWriter(body)
	_ = parts.SetBoundary(multipartBoundary) // it is a valid one
	for _, field := range fields {
		query = append(query, encode(field[0])+"="+encode(field[1]))
		_ = parts.WriteField(field[0], field[1]) // to memory
	}
	_ = parts.Close()
	switch {
	case body.Len() > maxBody:
		f.addUnknown("amp-form", fmt.Sprintf("a form with more than %d bytes", maxBody))
		return
	case e.ContentType == typeMultipart:
		e.Body = strings.TrimPrefix(body.String(), "\r\n")
	case e.ContentType == typeURLEncoded:
		e.Body = strings.Join(query, "&")
	case len(query) > 0:
		value = withQuery(value, strings.Join(query, "&"))
	}
	f.add("amp-form", value, e)
}

// fieldsOf returns the names and values of a form's fields, and which of them verify-xhr gets. The first button
// that submits the form is one of them, as if it was used.
func fieldsOf(form *html.Node) (all, toVerify [][2]string) {
	var button *html.Node
	add := func(n *html.Node, values ...string) {
		for _, value := range values {
			if name := attr(n, "name"); name != "" {
				all = append(all, [2]string{name, value})
				if !hasAttr(n, "no-verify") {
					toVerify = append(toVerify, [2]string{name, value})
				}
			}
		}
	}
	var read func(parent *html.Node)
	read = func(parent *html.Node) {
		for n := range parent.ChildNodes() {
			kind := strings.ToLower(attr(n, "type"))
			isBox := kind == "checkbox" || kind == "radio"
			switch {
			case n.Data == "form", n.Data == "template", hasAttr(n, "disabled"): // with what is in it
				continue
			case n.Data == "button" && kind != "button" && kind != "reset", n.Data == "input" && kind == "submit":
				if button == nil {
					button = n
				}
			case n.Data == "textarea":
				add(n, text(n))
			case n.Data == "select":
				add(n, chosen(n)...)
			case n.Data != "input" || isBox && !hasAttr(n, "checked") ||
				slices.Contains([]string{"button", "image", "file", "reset"}, kind):
			case isBox && !hasAttr(n, "value"):
				add(n, "on")
			default:
				add(n, attr(n, "value"))
			}
			read(n)
		}
	}
	read(form)
	if button != nil {
		add(button, attr(button, "value"))
	}
	return all, toVerify
}

// chosen returns the values of the selected options or, if several cannot be selected and none is, of the first.
func chosen(n *html.Node) (values []string) {
	first := true
	for option := range n.Descendants() {
		if option.Data != "option" || hasAttr(option, "disabled") {
			continue
		}
		value := attr(option, "value")
		if !hasAttr(option, "value") {
			value = strings.TrimSpace(text(option))
		}
		isSelected := hasAttr(option, "selected")
		switch {
		case isSelected && hasAttr(n, "multiple"):
			values = append(values, value)
		case isSelected, first && !hasAttr(n, "multiple"):
			values = []string{value}
		}
		first = false
	}
	return values
}

// isInside reports whether a node is in an element of this name.
func isInside(n *html.Node, name string) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.Data == name {
			return true
		}
	}
	return false
}
