package probe

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/idna"
)

// TestLookAlikesFollowFromTheirRules names each look-alike of some hosts. None is below the publisher's own domain.
func TestLookAlikesFollowFromTheirRules(t *testing.T) {
	for host, want := range map[string][2]string{
		"www.example.com": {
			"www.example.com.ampcors-probe.example www.example.community www.example.com.de evilexample.com evil-example.com wwwxexample.com " +
				"www.evilprobe.com www.example.cam",
			"xample.com ewww.xample.com wwwexample.com sexample.com comexample.com www.example.co www-example.com"},
		"amp.my-site.co.uk": {
			"amp.my-site.co.uk.ampcors-probe.example amp.my-site.co.ukx amp.my-site.co.uk.de evilmy-site.co.uk evil-my-site.co.uk " +
				"ampxmy-site.co.uk amp.evilprobe.co.uk amp.my-site.co.cam amp.my-sitexco.uk",
			"y-site.co.uk mamp.y-site.co.uk ampmy-site.co.uk smy-site.co.uk coukmy-site.co.uk amp.my-site.co amp-my-site.co.uk amp.my-site-co.uk " +
				"amp.my.site.co.uk"},
		"xn--bcher-kva.org": {
			"bücher.org.ampcors-probe.example bücher.organic bücher.org.de evilbücher.org evil-bücher.org wwwxbücher.org evilprobe.org bücher.cam",
			"ücher.org bwww.ücher.org wwwbücher.org sbücher.org orgbücher.org buecher.org bucher.org"},
	} {
		ofPatterns, ofFunctions := lookalikes(host)
		for i, got := range [][]string{ofPatterns, ofFunctions} {
			var names []string
			for _, domain := range got {
				name, err := idna.ToUnicode(domain)
				if err != nil {
					t.Error(domain, err)
				}
				names = append(names, name)
			}
			if strings.Join(names, " ") != want[i] {
				t.Errorf("%s: got\n%s\nwant\n%s", host, strings.Join(names, " "), want[i])
			}
		}
		for _, domain := range slices.Concat(ofPatterns, ofFunctions) {
			if site(domain) == site(host) {
				t.Errorf("%s is the publisher's own", domain)
			}
		}
	}
}
