// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/optional"
)

// addConfigMap adds the files of the config map called name. items selects keys and their paths; empty means all keys. A
// true mayMiss permits a missing config map or key.
func (b *builder) addConfigMap(name string, items []corev1.KeyToPath, mayMiss *bool) {
	o, ok := b.in.ConfigMaps[name]
	switch {
	case ok:
		data := make(map[string][]byte, len(o.Data)+len(o.BinaryData))
		for key, text := range o.Data {
			data[key] = []byte(text)
		}
		maps.Copy(data, o.BinaryData) // package objects ensures that no key is in both
		b.addKeys(data, items, mayMiss, "configmap references non-existent config key: %s")
	case !optional.IsTrue(mayMiss):
		b.addError("configmap %q not found", name)
	}
}

// addSecret adds the files of the secret called name. items selects keys and their paths; empty means all keys. A true
// mayMiss permits a missing secret or key.
func (b *builder) addSecret(name string, items []corev1.KeyToPath, mayMiss *bool) {
	o, ok := b.in.Secrets[name]
	switch {
	case ok:
		b.addKeys(o.Data, items, mayMiss, "references non-existent secret key: %s")
	case !optional.IsTrue(mayMiss):
		b.addError("secret %q not found", name)
	}
}

// addKeys adds a file for each item, or without items for each key of data. A missing key is an error, unless isOptional is
// true.
func (b *builder) addKeys(data map[string][]byte, items []corev1.KeyToPath, isOptional *bool, errorFormat string) {
	if len(items) == 0 {
		for key, content := range data {
			b.addFile(key, content, nil)
		}
		return
	}
	for _, item := range items {
		content, ok := data[item.Key]
		switch {
		case ok:
			b.addFile(item.Path, content, item.Mode)
		case !optional.IsTrue(isOptional):
			b.addError(errorFormat, item.Key)
		}
	}
}
