// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package credential finds the user names and passwords to pull an image with: in the pull secrets of a pod, in files
// of the node, and from credential provider plugins. It pulls nothing and talks to no registry.
//
// # Model
//
// A [Credential] is a user name, a password and the [Source] they come from. A [Keyring] holds credentials under
// patterns, such as "ghcr.io/team" or "*.example.com:5000", and returns those that match a repository, the longest
// pattern first. A [Provider] finds credentials of the node: [Files] reads the configuration of docker, [Plugins] runs
// the executables that a [PluginConfig] names.
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
// A password leaves this package through the field of that name and through [Credential.Auth] alone. Credentials,
// secrets and keyrings hide them from package fmt, from log/slog and from encoding/json, and no error holds one. A
// plugin's standard error is part of the error when it fails, without the token that it was given: what else a plugin
// writes there is its own affair.
//
// # Concurrency
//
// A keyring may be read by many goroutines once it is filled. Providers may be called from anywhere. A plugin runs
// inside the call that needs it and is gone when the call returns, with all processes of its process group; no
// goroutine stays.
//
// # Errors
//
// What is wrong with a secret, a file or a plugin is named with the object and the field. A provider returns what it
// did find beside the error.
//
// # Differs from the kubelet
//
// The model is pkg/credentialprovider of Kubernetes 1.37, with its secrets and plugin packages. DIFFERENCES.md has the
// whole list. What a user has to know:
//
//   - The login of Docker Hub is not offered to "localhost/app" and "Registry/app".
//   - [Files] reads the file at each lookup, looks nowhere but where it is told to, and refuses more than 1 MiB.
//   - A plugin is killed with its process group and may write 1 MiB.
//
// # Test kit
//
// There is none: a [Provider] has one method, and a [Keyring] is filled by hand.
package credential
