// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"log/slog"
	"strconv"
	"time"
)

// ImageSpec names an image.
type ImageSpec struct {
	Image              string // a reference or an ID
	UserSpecifiedImage string // as it stands in the pod
	Annotations        map[string]string
	RuntimeHandler     string // the handler whose image store is meant; empty: the default
	ImageRef           string // what the reference resolved to, in answers
}

// Image is an image that the runtime holds.
type Image struct {
	ID          string
	RepoTags    []string
	RepoDigests []string
	Size        uint64 // bytes on disk
	UID         *int64 // the user it runs as, where the image says so by number
	Username    string // the same, by name
	Spec        ImageSpec
	Pinned      bool // must not be garbage-collected
}

// Auth is a credential for a registry. It is never logged: its String method hides the secrets.
type Auth struct {
	Username      string
	Password      string
	Auth          string // base64 of "user:password"
	ServerAddress string
	IdentityToken string
	RegistryToken string
}

// String names the server and the user only.
func (a Auth) String() string {
	if a.ServerAddress == "" {
		return "credential of " + a.Username
	}
	return "credential of " + a.Username + " at " + a.ServerAddress
}

// GoString is String, so that %#v hides the secrets too.
func (a Auth) GoString() string { return a.String() }

// LogValue is String.
func (a Auth) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalJSON writes String, so that a log in JSON hides the secrets too.
func (a Auth) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(a.String())), nil }

// ImageUsage is the usage of the runtime's file systems.
type ImageUsage struct {
	Images     []FilesystemUsage // where images are kept
	Containers []FilesystemUsage // where writable layers are kept; empty when that is the same place
}

// FilesystemUsage is the usage of one file system. A nil number is one the runtime did not report.
type FilesystemUsage struct {
	Time       time.Time
	Mountpoint string
	UsedBytes  *uint64
	InodesUsed *uint64
}
