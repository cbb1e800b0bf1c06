// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// Of a patch that is wrong an error quotes so much.
	maxNameQuoted, maxContainersNamed = 63, 10
)

// containerLists are the lists of containers of a pod template.
var containerLists = []string{"initContainers", "containers"}

// namesOfContainers are the names in the lists of containers of a decoded pod template.
func namesOfContainers(template map[string]any) map[string][]string {
	names := map[string][]string{}
	for _, list := range containerLists {
		names[list] = containerNames(template, list)
	}
	return names
}

// unknownContainer returns an error if a patch has made a container, by a name that the
// template does not have, without giving it an image. A strategic merge patch adds what
// it does not find, and the pod would be refused for the image alone.
func unknownContainer(merged map[string]any, before map[string][]string) error {
	spec, _ := merged["spec"].(map[string]any)
	for _, list := range containerLists {
		containers, _ := spec[list].([]any)
		if len(before[list]) == 0 {
			continue // none was meant to be changed
		}
		for _, element := range containers {
			container, _ := element.(map[string]any)
			name, image := nameOf(element), container["image"]
			if name == "" || image != nil && image != "" || slices.Contains(before[list], name) {
				continue
			}
			return fmt.Errorf("it names container %q, which spec.%s of the template does not have (there %s); one that is added needs an image",
				cut(name), list, thereAre(before[list]))
		}
	}
	return nil
}

func thereAre(names []string) string {
	told := make([]string, 0, maxContainersNamed)
	for _, name := range names[:min(len(names), maxContainersNamed)] {
		told = append(told, cut(name))
	}
	if len(names) > len(told) {
		told = append(told, "...")
	}
	if len(told) == 1 {
		return "is " + told[0]
	}
	return "are " + strings.Join(told, ", ")
}

func cut(name string) string {
	if len(name) <= maxNameQuoted {
		return name
	}
	return strings.ToValidUTF8(name[:maxNameQuoted], "") + "..."
}
