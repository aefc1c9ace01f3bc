// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package credential finds the user names and passwords for image pulls: in the pull secrets of a pod, in files of the
// node, and through credential provider plugins. It does not pull images or contact registries.
//
// # Model
//
// A [Credential] is a user name and a password with their [Source]. A [Keyring] holds credentials by patterns such as
// "ghcr.io/team" or "*.example.com:5000", and returns those that match a repository, the longest pattern first. A
// [Provider] returns credentials of the node: [Files] reads docker configurations, [Plugins] runs the executables of a
// [PluginConfig].
//
//	ring := &credential.Keyring{}
//	object := credential.Object{UID: string(secret.UID), Namespace: secret.Namespace, Name: secret.Name}
//	err := ring.AddSecret(credential.Secret{Object: object, Data: secret.Data[".dockerconfigjson"]})
//	for _, c := range ring.Lookup("ghcr.io/team/app") {
//		try(c.Auth())
//	}
//
// # Secrecy
//
// Passwords leave this package only through the field Password and [Credential.Auth]. Credentials, secrets and keyrings
// hide them from package fmt, log/slog and encoding/json, and no error contains one. The error of a failed plugin includes
// its standard error with the token masked; the plugin itself must not write other secrets there.
//
// # Concurrency
//
// A filled keyring may be read concurrently. Providers are safe for concurrent use. A plugin runs within the call that needs
// it and is killed with its process group before the call returns; no goroutine remains.
//
// # Errors
//
// Errors of secrets, files and plugins name the object and the field. With an error a provider still returns the
// credentials that it found.
//
// # Differs from the kubelet
//
// The model is pkg/credentialprovider of Kubernetes 1.37 with its secrets and plugin packages. DIFFERENCES.md has the full
// list. The most important differences:
//
//   - The login of Docker Hub is not used for "localhost/app" and "Registry/app".
//   - [Files] reads the file at each lookup, only from the given paths, and refuses more than 1 MiB.
//   - A plugin is killed with its process group, and its output is limited to 1 MiB.
//
// # Test kit
//
// There is none: a [Provider] has one method, and tests can fill a [Keyring] directly.
package credential
