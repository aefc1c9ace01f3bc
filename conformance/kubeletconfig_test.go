// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/kubelet/config/v1beta1"
	kubeletdefaults "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// jsonFields returns the types of the fields of a struct by JSON name, including the fields of embedded structs.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() {
			continue
		}
		if name == "" {
			for name, field := range jsonFields(f.Type) {
				all[name] = field
			}
			continue
		}
		all[name] = f.Type
	}
	return all
}

// jsonShape describes the JSON format of a type. It ignores pointers and type names, which do not affect the format.
func jsonShape(t reflect.Type) any {
	switch t.Kind() {
	case reflect.Pointer:
		return []any{"optional", jsonShape(t.Elem())}
	case reflect.Slice:
		return []any{"list", jsonShape(t.Elem())}
	case reflect.Map:
		return []any{"map", jsonShape(t.Key()), jsonShape(t.Elem())}
	case reflect.Struct:
		if strings.HasPrefix(t.PkgPath(), "k8s.io/api") { // the same type on both sides
			return t.String()
		}
		if t == reflect.TypeFor[kubeletconfig.Amount]() { // only refuses some numbers
			return jsonShape(t.Field(0).Type)
		}
		fields := map[string]any{}
		for name, field := range jsonFields(t) {
			fields[name] = jsonShape(field)
		}
		return fields
	}
	return t.Kind().String()
}

// Every field of the kubelet's configuration file is a field of Configuration with the same JSON shape, or it is listed as
// unsupported.
func TestKubeletConfigurationHasTheFieldsOfTheKubelet(t *testing.T) {
	theirs, ours := jsonFields(reflect.TypeFor[v1beta1.KubeletConfiguration]()), jsonFields(reflect.TypeFor[kubeletconfig.Configuration]())
	unsupported := map[string]bool{}
	for _, name := range kubeletconfig.Unsupported() {
		unsupported[name] = true
		assert.Contains(t, theirs, name)
		assert.NotContains(t, ours, name)
	}
	for name, field := range theirs {
		if mine, ok := ours[name]; ok {
			assert.Equal(t, jsonShape(field), jsonShape(mine), name)
		} else {
			assert.True(t, unsupported[name], name)
		}
	}
	for name := range ours {
		assert.Contains(t, theirs, name)
	}
}

// leafNames returns the paths of the fields of a type that are no structs, in the notation of kubeletconfig.Fields.
func leafNames(t reflect.Type, path string) (names []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	decodesItself := func(t reflect.Type) bool { return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) }
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && !decodesItself(t.Elem()):
		return leafNames(t.Elem(), path+"[]")
	case t.Kind() != reflect.Struct || decodesItself(t):
		return []string{path}
	}
	for name, field := range jsonFields(t) {
		names = append(names, leafNames(field, strings.TrimPrefix(path+"."+name, "."))...)
	}
	return names
}

// The table of fields has every field of the kubelet's type, with those of its objects, and no other field.
func TestKubeletConfigurationTableIsComplete(t *testing.T) {
	var ours []string
	for _, f := range kubeletconfig.Fields() {
		ours = append(ours, f.Name)
		assert.NotEmpty(t, f.State, f.Name)
	}
	assert.ElementsMatch(t, leafNames(reflect.TypeFor[v1beta1.KubeletConfiguration](), ""), ours)
}

// defaultsThatDiffer has the fields whose defaults differ from the kubelet's, with the reason.
var defaultsThatDiffer = map[string]string{
	"maxParallelImagePulls":    "5 at a time; the kubelet pulls images serially",
	"serializeImagePulls":      "false, see maxParallelImagePulls",
	"containerRuntimeEndpoint": "none: plain processes; the kubelet has the socket of containerd",
	"evictionHard":             "set here; the kubelet sets it when it starts (eviction.DefaultHardEvictionMap)",
	"cgroupRoot":               `"/", the meaning of an empty one in the kubelet`,
	"enableSystemLogQuery":     "false, the meaning of nil in the kubelet",
	"failCgroupV1":             "false: cgroup v1 is supported",
}

func TestKubeletConfigurationHasTheDefaultsOfTheKubelet(t *testing.T) {
	theirs, ours := &v1beta1.KubeletConfiguration{}, &kubeletconfig.Configuration{}
	kubeletdefaults.SetDefaults_KubeletConfiguration(theirs)
	ours.SetDefaults(kubeletconfig.Defaults{Cluster: true, RemoteRuntime: true, HostSettings: true})
	fields := func(from any) map[string]any {
		text, err := json.Marshal(from)
		require.NoError(t, err)
		all := map[string]any{}
		require.NoError(t, json.Unmarshal(text, &all))
		return all
	}
	want, got := fields(theirs), fields(ours)
	for name := range jsonFields(reflect.TypeFor[kubeletconfig.Configuration]()) {
		switch _, differs := defaultsThatDiffer[name]; {
		case name == "apiVersion" || name == "kind":
		case differs:
			assert.NotEqual(t, want[name], got[name], "the default of %s no longer differs", name)
		default:
			assert.Equal(t, want[name], got[name], name)
		}
	}
}
