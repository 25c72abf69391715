package ampcors

import "strings"

// A writtenList is Config.Publishers as they were written, for [Middleware.Config]. Most are
// written in the form in which they are compared, so only one copy of them is kept.
type writtenList struct {
	names  *nameList
	n      int
	others []otherSpelling // by index
}

// An otherSpelling is a publisher that is not in the nameList, or is there in another form:
// a pattern, a name that is listed twice, one in Unicode or in upper case.
type otherSpelling struct {
	index  int
	text   string
	isName bool // the next name of the nameList is another form of this publisher
}

func newWrittenList(n int) writtenList { return writtenList{names: newNameList(n)} }

// add adds a publisher as it was written, and its domain in the form in which it is compared.
func (w *writtenList) add(text, domain string, isPattern bool) {
	isName := !isPattern && w.names.add(domain)
	if !isName || text != domain {
		w.others = append(w.others, otherSpelling{w.n, text, isName})
	}
	w.n++
}

// built ends the adding of publishers. It copies the texts, which may be parts of a large
// string.
func (w *writtenList) built() {
	w.names.built()
	length := 0
	for _, o := range w.others {
		length += len(o.text)
	}
	var b strings.Builder
	b.Grow(length)
	for _, o := range w.others {
		b.WriteString(o.text)
	}
	rest, others := b.String(), make([]otherSpelling, len(w.others))
	for i, o := range w.others {
		others[i] = otherSpelling{o.index, rest[:len(o.text)], o.isName}
		rest = rest[len(o.text):]
	}
	w.others = others
}

// list returns the publishers in their order; nil if there are none.
func (w *writtenList) list() []string {
	if w.n == 0 {
		return nil
	}
	list, others, next := make([]string, w.n), w.others, uint32(0)
	for i := range list {
		isName := true
		if len(others) > 0 && others[0].index == i {
			list[i], isName, others = others[0].text, others[0].isName, others[1:]
		} else {
			list[i] = w.names.name(next)
		}
		if isName {
			next++
		}
	}
	return list
}
