package cacheurl

import (
	"strings"

	"github.com/ampcors/ampcors/internal/pageurl"
)

// GuessType returns the content type that the extension of a publisher's URL suggests:
// [Image] for "/photo.jpg", [Resource] for the font "/serif.woff2", and [Document] for
// everything else, even if it is not a URL. Case does not matter. It knows only extensions that no
// document has. (AMP's toolbox knows nearly three hundred, such as ".ai", and so takes the document
// "/agents.ai" for an image.) Set [URL.Type] if the type is known.
func GuessType(publisherURL string) ContentType {
	u, problem := pageurl.Split(publisherURL, pageurl.AsBrowsers)
	if problem != nil {
		return Document
	}
	return guessType(u.Path)
}

func guessType(path string) ContentType {
	switch strings.ToLower(path[strings.LastIndexByte(path, '.')+1:]) {
	case "avif", "bmp", "gif", "heic", "ico", "jpeg", "jpg", "png", "svg", "tif", "tiff", "webp":
		return Image
	case "eot", "otf", "ttc", "ttf", "woff", "woff2":
		return Resource
	}
	return Document
}
