// Package pages asks the operating system for large pages, on systems that have them.
package pages
