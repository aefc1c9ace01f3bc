// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"errors"
	"fmt"
	"strings"
)

// Parse takes the name of an image apart. Names of 64 hexadecimal digits are refused, as they are taken for IDs.
//
//	reference = name [ ":" tag ] [ "@" digest ]
//	name      = [ domain "/" ] part { "/" part }
//	domain    = label { "." label } [ ":" port ], or an IPv6 address in brackets
//	part      = lower-case letters and digits, with ".", "_", "__" or dashes between them
//	tag       = up to 128 letters, digits, "_", "." and "-", the first neither "." nor "-"
//	digest    = sha256, sha384 or sha512, ":", and lower-case hexadecimal digits
//
// What stands before the first slash is a domain when it is "localhost" or has a dot, a colon or an upper-case
// letter; otherwise the domain is docker.io.
func Parse(s string) (Reference, error) {
	r, err := parse(s)
	if err != nil {
		return Reference{}, fmt.Errorf("image name %q: %w", s, err)
	}
	return r, nil
}

func parse(s string) (Reference, error) {
	if s == "" {
		return Reference{}, errors.New("is empty")
	}
	if isHex(s, 64) {
		return Reference{}, errors.New("is an ID")
	}
	name, digest, hasDigest := strings.Cut(s, "@")
	if hasDigest && !isDigest(digest) {
		return Reference{}, errors.New("digest is not sha256, sha384 or sha512 with its hexadecimal digits")
	}
	domain, rest := Split(name)
	path, tag, hasTag := strings.Cut(rest, ":")
	if hasTag && !isTag(tag) {
		return Reference{}, errors.New("tag is not valid")
	}
	if !isDomain(domain) {
		// The grammar is wider than what a registry can be called: "a_b.c/d" is a path of its own.
		domain, path = "", domain+"/"+path
	}
	if !isPath(path) {
		return Reference{}, errors.New("repository is not lower-case letters and digits, single separators and slashes")
	}
	if len(path) > maxPath {
		return Reference{}, fmt.Errorf("repository is longer than %d characters", maxPath)
	}
	short := name
	if hasTag {
		short = name[:len(name)-len(":"+tag)]
	}
	return Reference{Short: short, Domain: domain, Path: path, Tag: tag, Digest: digest}, nil
}

// Split divides the name of an image into the registry, said or meant, and the rest: "localhost/app" is one of
// localhost, and "team/app" one of [DockerHub]. It takes any string and does not check it; see [Parse].
func Split(name string) (registry, rest string) {
	first, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return DockerHub, library + name
	case first == legacyHub:
		first = DockerHub
	case first != "localhost" && !strings.ContainsAny(first, ".:") && strings.ToLower(first) == first:
		return DockerHub, name
	}
	if first == DockerHub && !strings.Contains(rest, "/") {
		rest = library + rest
	}
	return first, rest
}

func isDigest(s string) bool {
	algorithm, digits, _ := strings.Cut(s, ":")
	switch algorithm {
	case "sha256":
		return isHex(digits, 64)
	case "sha384":
		return isHex(digits, 96)
	case "sha512":
		return isHex(digits, 128)
	}
	return false
}

func isTag(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsAny(s[:1], ".-") &&
		all(s, func(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' || c == '.' || c == '-' })
}

func isDomain(s string) bool {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
		if port == "" || !all(port, isDigit) {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && all(inner, func(c byte) bool {
			return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' || c == ':'
		})
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' ||
			!all(label, func(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' }) {
			return false
		}
	}
	return true
}

func isPath(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if !isPart(part) {
			return false
		}
	}
	return true
}

// isPart wants letters and digits at both ends and one separator at a time between them.
func isPart(s string) bool {
	alphanumeric := func(c byte) bool { return c >= 'a' && c <= 'z' || isDigit(c) }
	for {
		word := 0
		for word < len(s) && alphanumeric(s[word]) {
			word++
		}
		if word == 0 || word == len(s) {
			return word > 0
		}
		s = s[word:]
		separator := 0
		for separator < len(s) && !alphanumeric(s[separator]) {
			separator++
		}
		switch sep := s[:separator]; {
		case sep == "." || sep == "_" || sep == "__":
		case strings.Trim(sep, "-") != "":
			return false
		}
		s = s[separator:]
	}
}

func isHex(s string, n int) bool {
	return len(s) == n && all(s, func(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' })
}

func all(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
