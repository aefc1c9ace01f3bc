// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"maps"
	"reflect"
	"regexp"
	"strings"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/eviction"
)

var duplicateKey = regexp.MustCompile(`key "([A-Za-z]+)" already set`)

// ourResult loads, merges, defaults and validates configuration files.
func ourResult(path, dropIns string) configResult {
	r := configResult{refused: map[string]string{}}
	d, err := kubeletconfig.LoadDir(path, dropIns)
	if r.loaded = err == nil; r.loaded {
		d.Kubelet.SetDefaults(kubeletconfig.Defaults{Cluster: true, RemoteRuntime: true, HostSettings: true})
		err = d.Kubelet.Validate()
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			field := ""
			if dup := duplicateKey.FindStringSubmatch(line); dup != nil {
				field = dup[1]
			}
			for i, part := range strings.Split(strings.TrimSpace(line), ": ") {
				name := strings.FieldsFunc(part, func(c rune) bool { return strings.ContainsRune(" :.[", c) })
				if i < 2 && len(name) > 0 && !strings.HasPrefix(part, "/") && field == "" {
					field = name[0]
				}
			}
			r.refused[field] = strings.TrimSpace(line)
		}
		return r
	}
	r.fields = jsonObject(d.Kubelet)
	if *d.Kubelet.MergeDefaultEvictionSettings {
		hard := eviction.DefaultHard()
		maps.Copy(hard, d.Kubelet.EvictionHard)
		r.fields["evictionHard"] = jsonObject(hard)
	}
	return r
}

// isEmptyJSON reports whether a value is missing or an empty map or list, which are equal for every field of a configuration.
func isEmptyJSON(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return v == nil
}

// configFieldNames has the JSON names of the fields of Configuration.
var configFieldNames = func() (names []string) {
	for i := range reflect.TypeFor[kubeletconfig.Configuration]().NumField() {
		if name, _, _ := strings.Cut(reflect.TypeFor[kubeletconfig.Configuration]().Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}()
