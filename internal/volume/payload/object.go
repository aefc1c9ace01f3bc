// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/optional"
)

// configMap adds the files of a config map.
func (b *builder) configMap(name string, items []corev1.KeyToPath, mayMiss *bool) {
	o, ok := b.in.ConfigMaps[name]
	switch {
	case ok:
		data := make(map[string][]byte, len(o.Data)+len(o.BinaryData))
		for key, text := range o.Data {
			data[key] = []byte(text)
		}
		maps.Copy(data, o.BinaryData) // no key is in both: see package objects
		b.keys(data, items, mayMiss, "configmap references non-existent config key: %s")
	case !optional.IsTrue(mayMiss):
		b.fail("configmap %q not found", name)
	}
}

// secret adds the files of a secret.
func (b *builder) secret(name string, items []corev1.KeyToPath, mayMiss *bool) {
	o, ok := b.in.Secrets[name]
	switch {
	case ok:
		b.keys(o.Data, items, mayMiss, "references non-existent secret key: %s")
	case !optional.IsTrue(mayMiss):
		b.fail("secret %q not found", name)
	}
}

// keys adds a file for each item, or for each key where there are no items.
func (b *builder) keys(data map[string][]byte, items []corev1.KeyToPath, mayMiss *bool, missing string) {
	if len(items) == 0 {
		for key, content := range data {
			b.put(key, content, nil)
		}
		return
	}
	for _, item := range items {
		content, ok := data[item.Key]
		switch {
		case ok:
			b.put(item.Path, content, item.Mode)
		case !optional.IsTrue(mayMiss):
			b.fail(missing, item.Key)
		}
	}
}
