package ampcors

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

// isMailProvider reports whether domain belongs to a mail provider at which anybody can get
// an address. The list has large providers, and cannot be complete.
func isMailProvider(domain string) bool {
	if _, ok := mailProviders[domain]; ok {
		return true
	}
	name, suffix, _ := strings.Cut(domain, ".")
	if actual, _ := publicsuffix.PublicSuffix(domain); actual != suffix {
		return false // it is not directly below a public suffix
	}
	switch name {
	case "aol", "gmx", "hotmail", "outlook", "protonmail", "tutanota", "yahoo", "yandex", "ymail", "zohomail":
		return true // these providers have domains in many countries
	}
	return false
}

var mailProviders = setOf(strings.Fields(`
	gmail.com googlemail.com
	live.com live.be live.ca live.co.uk live.de live.dk live.fr live.it live.jp live.nl live.no live.se
	icloud.com me.com mac.com msn.com rocketmail.com hey.com
	proton.me pm.me tuta.com tuta.io tutamail.com keemail.me zoho.com zoho.eu zoho.in
	fastmail.com fastmail.fm mail.com mail.de mail.ru
	hushmail.com inbox.com inbox.lv lycos.com usa.com email.com mailbox.org posteo.de disroot.org
	comcast.net att.net sbcglobal.net bellsouth.net verizon.net cox.net charter.net rogers.com shaw.ca
	btinternet.com sky.com virginmedia.com ntlworld.com talktalk.net
	web.de freenet.de t-online.de arcor.de bluewin.ch a1.net
	free.fr orange.fr wanadoo.fr laposte.net sfr.fr libero.it virgilio.it tin.it alice.it tiscali.it
	ziggo.nl kpnmail.nl planet.nl telenet.be skynet.be telefonica.net
	o2.pl wp.pl interia.pl onet.pl seznam.cz centrum.cz freemail.hu citromail.hu abv.bg ukr.net i.ua
	bk.ru list.ru inbox.ru ya.ru rambler.ru
	uol.com.br bol.com.br terra.com.br ig.com.br
	qq.com foxmail.com 163.com 126.com yeah.net sina.com sina.cn sohu.com 139.com 189.cn 21cn.com aliyun.com
	naver.com hanmail.net daum.net nate.com docomo.ne.jp ezweb.ne.jp softbank.ne.jp
	rediffmail.com bigpond.com optusnet.com.au xtra.co.nz mweb.co.za
`))
