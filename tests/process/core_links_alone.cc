// core_links_alone: the whole core archive in a program with its few packages and nothing of ours
// beside it.
int main() {
    return 0;
}
