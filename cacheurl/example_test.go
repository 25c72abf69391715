package cacheurl_test

import (
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/ampcors/ampcors/cacheurl"
)

func Example() {
	cacheURL, err := cacheurl.URL{Publisher: "https://www.example.com/article?id=7"}.Build()
	if err != nil {
		log.Fatal(err)
	}
	u, err := cacheurl.Parse(cacheURL)
	if err != nil {
		log.Fatal(err) // such as a prefix that is not of the host in the path
	}
	fmt.Println(cacheURL)
	fmt.Println(u.Publisher, u.Cache.ID, u.Type)
	// Output:
	// https://www-example-com.cdn.ampproject.org/c/s/www.example.com/article?id=7
	// https://www.example.com/article?id=7 google c
}

func ExampleURL_Build() {
	for _, u := range []cacheurl.URL{
		{Publisher: "https://www.example.com/article?id=7"},
		{Publisher: "http://bücher.example/photo.jpg", Type: cacheurl.Image},
		{Publisher: "https://www.example.com/photo.jpg", ImageParams: "w800"},
		{Publisher: "https://www.example.com/article", Cache: cacheurl.DefaultCaches()[1]},
	} {
		cacheURL, err := u.Build()
		if err != nil {
			panic(err)
		}
		fmt.Println(cacheURL)
	}
	// Output:
	// https://www-example-com.cdn.ampproject.org/c/s/www.example.com/article?id=7
	// https://xn--bcher-example-wob.cdn.ampproject.org/i/xn--bcher-kva.example/photo.jpg
	// https://www-example-com.cdn.ampproject.org/ii/w800/s/www.example.com/photo.jpg
	// https://www-example-com.www.bing-amp.com/c/s/www.example.com/article
}

func ExampleParse() {
	u, err := cacheurl.Parse("https://www-example-com.cdn.ampproject.org/v/s/www.example.com/article?id=7&amp_js_v=0.1#cap=swipe")
	if err != nil {
		panic(err)
	}
	fmt.Println(u.Publisher, u.Cache.ID, u.Type, u.CacheQuery)

	_, err = cacheurl.Parse("https://www-example-com.cdn.ampproject.org/c/s/evil.example/article")
	fmt.Println(err)
	// Output:
	// https://www.example.com/article?id=7 google v amp_js_v=0.1
	// ampcors: cacheURL "https://www-example-com.cdn.ampproject.org/c/s/evil.example/article" has the domain prefix "www-example-com", which is not one of the prefixes of "evil.example"; want the prefix of the host in the path
}

func ExampleDomainPrefix() {
	for _, publisher := range []string{"www.example.com", "en-us.example.com", "bücher.example"} {
		prefix, err := cacheurl.DomainPrefix(publisher)
		fmt.Println(prefix, err)
	}
	// Output:
	// www-example-com <nil>
	// 0-en--us-example-com-0 <nil>
	// xn--bcher-example-wob <nil>
}

func ExamplePublisherDomain() {
	fmt.Println(cacheurl.PublisherDomain("a--b-example-com"))
	_, err := cacheurl.PublisherDomain("v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq")
	fmt.Println(errors.Is(err, cacheurl.ErrHashPrefix))
	// Output:
	// a-b.example.com <nil>
	// true
}

func ExampleOrigins() {
	origins, err := cacheurl.Origins("www.example.com", cacheurl.DefaultCaches()[:2]...) // without a list: on each
	fmt.Println(strings.Join(origins, "\n"), err)
	// Output:
	// https://www-example-com.cdn.ampproject.org
	// https://www-example-com.www.bing-amp.com <nil>
}
