package configfile_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ampcors/ampcors/configfile"
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer inDirectoryWith(map[string]string{
		"config.json":    `{"publishersFile": "publishers.txt", "credentialed": true}`,
		"publishers.txt": "www.example.com\n*.news.example # all of them\n",
	})()

	mw, watcher, err := configfile.File{Path: "config.json"}.Watch(configfile.WatcherConfig{})
	if err != nil {
		log.Fatal(err) // such as: publishers.txt:17:1: "https://a.example" has a scheme; want "a.example"
	}
	go watcher.Run(ctx)

	fmt.Println(mw.CheckOrigin("https://sports-news-example.cdn.ampproject.org").Publisher)
	// Output: sports.news.example
}

// All problems are reported at once.
func ExampleFile_Config() {
	defer inDirectoryWith(map[string]string{
		"config.json": `{
	"publishers": ["www.example.com", "https://shop.example"],
	"maxAge": "10 minutes",
	"credentials": true
}`,
	})()
	file := configfile.File{Path: "config.json"}
	_, err := file.Config()
	fmt.Println(err)
	defer inDirectoryWith(map[string]string{
		"config.json":    `{"publishersFile": "publishers.txt", "maxAge": "36h"}`,
		"publishers.txt": "# ours\nwww.example.com\nhttps://a.example\n",
	})()
	_, err = file.Config()
	fmt.Println(err)
	// Output:
	// config.json:2:36: publishers[1] "https://shop.example" has a scheme; want "shop.example"
	// config.json:3:12: maxAge is "10 minutes"; want a duration such as "10m" or "90s"
	// config.json:4:2: "credentials" is unknown; did you mean "credentialed"?
	// config.json:1:48: maxAge "36h0m0s" is out of range; want 0 to 24h
	// publishers.txt:3:1: "https://a.example" has a scheme; want "a.example"
}

// inDirectoryWith changes to a new directory with the files. The function that it returns
// changes back and removes the directory.
func inDirectoryWith(files map[string]string) (back func()) {
	before, err := os.Getwd()
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.Chdir(dir); err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	return func() {
		_ = os.Chdir(before)
		_ = os.RemoveAll(dir)
	}
}
