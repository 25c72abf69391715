package cacheurl

import (
	"strings"

	"github.com/ampcors/ampcors/internal/pageurl"
)

// GuessType returns the content type that the extension of a publisher's URL suggests:
// [Image] for "/photo.jpg", [Resource] for the font "/serif.woff2", and [Document] for
// everything else, even if it is not a URL. The extensions are those of the AMP toolbox, in
// any case, and avif and heic. GuessType can be wrong: the toolbox knows nearly three hundred
// extensions, such as ".ai", ".max" and ".75", so a document at "/agents.ai" is guessed to
// be an image. Set [URL.Type] if the type is known.
//
// Unlike in the toolbox, case does not matter, and GuessType requires the dot: the toolbox treats "/service" as a font,
// because it ends in the letters of ".ice".
func GuessType(publisherURL string) ContentType {
	u, problem := pageurl.Split(publisherURL, pageurl.AsBrowsers)
	if problem != nil {
		return Document
	}
	return guessType(u.Path)
}

func guessType(path string) ContentType {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		if t, ok := typeOfExtension[strings.ToLower(path[i+1:])]; ok {
			return t
		}
	}
	return Document
}

var typeOfExtension = func() map[string]ContentType {
	types := make(map[string]ContentType)
	for _, extension := range strings.Fields(imageExtensions + "avif heic") {
		types[strings.ToLower(extension)] = Image
	}
	for _, extension := range strings.Fields(fontExtensions) {
		types[extension] = Resource
	}
	return types
}()

// Source: packages/cache-url/lib/ImageExtensions.js in github.com/ampproject/amp-toolbox.
const imageExtensions = `
	3dv ai amf art ase awg blp bmp bw cd5 cdr cgm cit cmx cpt cr2 cur cut dds dib djvu dxf e2d
	ecw egt emf eps exif fs gbr gif gpl grf hdp icns ico iff int inta jfif jng jp2 jpeg jpg jps
	jxr lbm liff max miff mng msp nitf nrrd odg ota pam pbm pc1 pc2 pc3 pcf pct pcx pdd pdn pgf
	pgm PI1 PI2 PI3 pict png pnm pns ppm psb psd psp px pxm pxr qfx ras raw rgb rgba rle sct sgi
	sid stl sun svg sxd tga tif tiff v2d vnd vrml vtf wdp webp wmf x3d xar xbm xcf xpm
`

// Source: FontExtensions.js beside it, without those that are also images, and those
// with which no path can end, such as "###" and "us?".
const fontExtensions = `
	$on $tf 075 085 091 096 0b 12u 15u 64c 75 85 8m 8u 91 96 _v abf acfm acs afm afn afs all
	amfm apf asf aspf atm auf b30 bco bdf bepf bez bfn bmap bmf bx bzr cbtf cct cef cff cfn cga
	ch4 cha chm chr chx claf collection compositefont dfont dus dzk eft eot etx euf f00 f06 f08
	f09 f10 f11 f12 f13 f16 f3f fd fdb ff ffil flf fli fn3 fnb fnn fnt fnta fo1 fo2 fog fon font
	fonts fot frf frs ftm fxr fyi gdr gf gft glf glif glyphs gsf gxf hbf ice intellifont lepf
	lft lwfn mcf mfd mfm mft mgf mmm mrf mtf mvec nlq ntf odttf ofm okf otf pfa pfb pfm pft phf
	pk pkt prs pss qbf qfn scr sfd sff sfi sfl sfn sfo sfp sfs sif snf spd spritefont sui suit
	sxs t1c t2 tb1 tb2 tdf tfm tmf tpf ttc tte ttf type ufm ufo usl usp vf vf1 vf3 vfb vfm vfont
	vlw vmf vnf w30 wfn wnf woff woff2 xfc xfn xfr xft zfi zsu
`
