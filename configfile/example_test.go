package configfile_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ampcors/ampcors/configfile"
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	mw, watcher, err := configfile.File{Path: "config.json"}.Watch(configfile.WatcherConfig{})
	if err != nil {
		log.Fatal(err) // such as: publishers.txt:17:1: "https://a.example" has a scheme; want "a.example"
	}
	go watcher.Run(ctx)

	fmt.Println(mw.CheckOrigin("https://sports-news-example.cdn.ampproject.org").Publisher)
}
