// Command bom writes the bill of materials of a Go program, in the JSON of CycloneDX
// (https://cyclonedx.org/specification/overview/), from what the linker has written into the program.
//
//	go run ./e2e/bom PROGRAM VERSION
package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bom:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("want a program and its version")
	}
	info, err := buildinfo.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	program := component(cyclonedx.ComponentTypeApplication, &debug.Module{Path: info.Path, Version: os.Args[2]})
	bom.Metadata = &cyclonedx.Metadata{Component: &program}
	components := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary,
		&debug.Module{Path: "std", Version: info.GoVersion[len("go"):]})}
	for _, module := range info.Deps {
		if module.Replace != nil || module.Version == "(devel)" { // of this repository
			module.Version = os.Args[2]
		}
		components = append(components, component(cyclonedx.ComponentTypeLibrary, module))
	}
	bom.Components = &components
	encoder := cyclonedx.NewBOMEncoder(os.Stdout, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return encoder.Encode(bom)
}

func component(kind cyclonedx.ComponentType, module *debug.Module) cyclonedx.Component {
	url := "pkg:golang/" + module.Path + "@" + module.Version
	return cyclonedx.Component{BOMRef: url, Type: kind, Name: module.Path, Version: module.Version, PackageURL: url}
}
